# SPDX-License-Identifier: Apache-2.0
"""A linear layer with several parallel LoRAs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.functional import linear

from verl_kernel.remix.options import ReMixOptions

Gates = Callable[["ReMixLinear", torch.Tensor], torch.Tensor]
"""Chooses for a layer and its input, (B, ..., in), the LoRAs of every row: (B, n) bool."""


class ReMixLinear(nn.Module):
    """y = W x + omega * the sum of B_i A_i x over the chosen LoRAs (arXiv 2603.10160).

    `lora_a` (n r, in) and `lora_b` (out, n r) hold all LoRAs, `router` (n, D) is the paper's P. B starts at zero,
    so that the layer first acts like its base; P starts at zero, so that all subsets are first equally likely.
    """

    def __init__(self, name: str, base: nn.Linear, options: ReMixOptions, key_width: int, gates: Gates) -> None:
        super().__init__()
        self.name, self.base, self._options, self._gates = name, base, options, gates
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
        options = self._options
        gates = self._gates(self, x).repeat_interleave(options.rank, dim=1)
        gates = gates.view(len(x), *[1] * (x.dim() - 2), -1)
        out: torch.Tensor = self.base(x)
        update = linear(linear(x.to(self.lora_a.dtype), self.lora_a) * gates, self.lora_b)
        return out + (options.omega * update).to(out.dtype)
