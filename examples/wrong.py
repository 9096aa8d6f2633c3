# SPDX-License-Identifier: Apache-2.0
"""Compiles and runs, but forgets the constant."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def fused(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.maximum(tl.load(x_ptr + offsets, mask=mask) * 2.0, 0.0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        n = x.numel()
        fused[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)
        return out
