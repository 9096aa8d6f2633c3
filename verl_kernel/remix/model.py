# SPDX-License-Identifier: Apache-2.0
"""A model with several LoRAs beside its linear layers: the replacement of these layers."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from verl_kernel.errors import ConfigError
from verl_kernel.remix.linear import ReMixLinear
from verl_kernel.remix.options import ReMixOptions
from verl_kernel.remix.routing import Routing

FEED_FORWARD = ("gate_proj", "up_proj", "down_proj")
"""The feed-forward layers of Llama, Qwen and similar models: the paper's targets."""


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
        layer = routing.layers[name] = ReMixLinear(name, module, options, key_width, routing.gates)
        parent, _, leaf = name.rpartition(".")
        setattr(model.get_submodule(parent), leaf, layer)
    return routing
