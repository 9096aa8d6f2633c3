# SPDX-License-Identifier: Apache-2.0
# Argmax over the middle dimension; of equal values the first counts.
# expected: ok
# speedup: 0.9 to 1.3

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def argmax_down(x, out, R, C, BR: tl.constexpr, BC: tl.constexpr):
    batch = tl.program_id(0)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    best = tl.full((BC,), -float("inf"), tl.float32)
    where = tl.zeros((BC,), tl.int32)
    for start in range(0, R, BR):
        r = start + tl.arange(0, BR)
        mask = (r[:, None] < R) & (c[None, :] < C)
        value = tl.load(x + batch * R * C + r[:, None] * C + c[None, :], mask=mask, other=-float("inf"))
        top, at = tl.max(value, 0, return_indices=True)
        where = tl.where(top > best, start + at, where)
        best = tl.maximum(best, top)
    tl.store(out + batch * C + c, where.to(tl.int64), mask=c < C)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        x = x.contiguous()
        batch, R, C = x.shape
        out = torch.empty((batch, C), device=x.device, dtype=torch.int64)
        argmax_down[(batch, triton.cdiv(C, 64))](x, out, R, C, BR=64, BC=64, num_warps=8)
        return out
