# SPDX-License-Identifier: Apache-2.0
# Minimum over the middle dimension whose masked lanes count as 0, the usual slip beside a sum.
# expected: incorrect

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def column_minima(x, out, R, C, BR: tl.constexpr, BC: tl.constexpr):
    batch = tl.program_id(0)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    best = tl.full((BC,), float("inf"), tl.float32)
    for start in range(0, R, BR):
        r = start + tl.arange(0, BR)
        mask = (r[:, None] < R) & (c[None, :] < C)
        value = tl.load(x + batch * R * C + r[:, None] * C + c[None, :], mask=mask, other=0.0)
        best = tl.minimum(best, tl.min(value, 0))
    tl.store(out + batch * C + c, best, mask=c < C)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        x = x.contiguous()
        batch, R, C = x.shape
        out = torch.empty((batch, C), device=x.device, dtype=x.dtype)
        column_minima[(batch, triton.cdiv(C, 128))](x, out, R, C, BR=64, BC=128)
        return out
