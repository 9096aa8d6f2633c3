# SPDX-License-Identifier: Apache-2.0
# Sum over the middle dimension: a program walks down 128 columns.
# expected: ok
# speedup: 0.9 to 1.3

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def column_sums(x, out, R, C, BR: tl.constexpr, BC: tl.constexpr):
    batch = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    total = tl.zeros((BC,), tl.float32)
    for start in range(0, R, BR):
        r = start + tl.arange(0, BR)
        mask = (r[:, None] < R) & (c[None, :] < C)
        total += tl.sum(tl.load(x + batch * R * C + r[:, None] * C + c[None, :], mask=mask, other=0.0), 0)
    tl.store(out + batch * C + c, total, mask=c < C)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        x = x.contiguous()
        batch, R, C = x.shape
        out = torch.empty((batch, 1, C), device=x.device, dtype=x.dtype)
        column_sums[(batch, triton.cdiv(C, 128))](x, out, R, C, BR=64, BC=128, num_warps=8)
        return out
