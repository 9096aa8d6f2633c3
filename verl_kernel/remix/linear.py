# SPDX-License-Identifier: Apache-2.0
"""A linear layer with several parallel LoRAs, and the replacement of a model's layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.functional import linear

from verl_kernel.errors import ConfigError
from verl_kernel.remix.options import ReMixOptions
from verl_kernel.remix.routing import Routing

FEED_FORWARD = ("gate_proj", "up_proj", "down_proj")
"""The feed-forward layers of Llama, Qwen and similar models: the paper's targets."""


class ReMixLinear(nn.Module):
    """y = W x + omega * the sum of B_i A_i x over the chosen LoRAs (arXiv 2603.10160).

    `lora_a` (n r, in) and `lora_b` (out, n r) hold all LoRAs, `router` (n, D) is the paper's P. B starts at zero,
    so that the layer first acts like its base; P starts at zero, so that all subsets are first equally likely.
    """

    def __init__(self, name: str, base: nn.Linear, routing: Routing, key_width: int) -> None:
        super().__init__()
        options = routing.options
        self.name, self.base, self._routing = name, base, routing
        width, read = options.loras * options.rank, key_width if options.router == "prompt" else base.in_features
        # float32 or more, as in PEFT: half precision would lose small updates, and blur sums over all layers.
        kind: dict[str, Any] = {
            "dtype": torch.promote_types(base.weight.dtype, torch.float32),
            "device": base.weight.device,
        }
        self.lora_a = nn.Parameter(torch.empty(width, base.in_features, **kind))
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, width, **kind))
        self.router = nn.Parameter(torch.zeros(options.loras, read, **kind))
        nn.init.kaiming_uniform_(self.lora_a, a=math.sqrt(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the output for x, (B, ..., in); row b uses the LoRAs that it chose in this pass."""
        options = self._routing.options
        gates = self._routing.gates(self, x).repeat_interleave(options.rank, dim=1)
        gates = gates.view(len(x), *[1] * (x.dim() - 2), -1)
        out: torch.Tensor = self.base(x)
        update = linear(linear(x.to(self.lora_a.dtype), self.lora_a) * gates, self.lora_b)
        return out + (options.omega * update).to(out.dtype)


def apply_remix(
    model: nn.Module, options: ReMixOptions, targets: Sequence[str] = FEED_FORWARD, key_width: int = 1
) -> Routing:
    """Freeze a model and add LoRAs, in place, to every linear layer with a name in `targets`.

    Args:
        model: model whose linear layers are replaced.
        options: number, rank and scale of the LoRAs, and what the routers read.
        targets: last parts of the names of the layers.
        key_width: width of a prompt's key, if routers read it.

    Returns:
        The routing that the layers share; the model can be called inside its `run`.

    Raises:
        ConfigError: a target names no linear layer.
    """
    found = {name: module for name, module in model.named_modules() if name.rpartition(".")[2] in targets}
    for target in targets:
        of_target = [module for name, module in found.items() if name.rpartition(".")[2] == target]
        if not of_target or not all(isinstance(module, nn.Linear) for module in of_target):
            raise ConfigError(
                f"remix.targets names {target!r}, which is no linear layer of this model: name those that are"
            )
    model.requires_grad_(False)
    routing = Routing(options)
    for name, module in found.items():
        assert isinstance(module, nn.Linear)
        layer = routing.layers[name] = ReMixLinear(name, module, routing, key_width)
        parent, _, leaf = name.rpartition(".")
        setattr(model.get_submodule(parent), leaf, layer)
    return routing
