# SPDX-License-Identifier: Apache-2.0
"""Correct, but the kernel does the smallest part and torch the rest."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def relu(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.maximum(tl.load(x_ptr + offsets, mask=mask), 0.0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2.0 + 1.0
        out = torch.empty_like(y)
        n = y.numel()
        relu[(triton.cdiv(n, 1024),)](y, out, n, BLOCK=1024)
        return out
