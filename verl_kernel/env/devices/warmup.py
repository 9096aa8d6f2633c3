# SPDX-License-Identifier: Apache-2.0
"""A small program that a zygote runs once before it forks, so that runners inherit modules imported on first use."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import nn

_SIZE = 16


@triton.jit  # type: ignore[untyped-decorator]
def _add(x, y, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask), mask=mask)


@triton.jit  # type: ignore[untyped-decorator]
def _softmax(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    offsets = tl.arange(0, BLOCK)
    row = tl.load(x + offsets, mask=offsets < n, other=-float("inf"))
    row = tl.exp(row - tl.max(row, 0))
    tl.store(out + offsets, row / tl.sum(row, 0), mask=offsets < n)


class WarmUpProgram(nn.Module):
    """A product, a sum and a softmax, by torch and by Triton."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(_SIZE, _SIZE))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (16,) to (16,)."""
        y, out = torch.relu(self.weight @ x), torch.empty_like(x)
        _add[(1,)](x, y, out, _SIZE, BLOCK=_SIZE)
        _softmax[(1,)](out, out, _SIZE, BLOCK=_SIZE)
        return out
