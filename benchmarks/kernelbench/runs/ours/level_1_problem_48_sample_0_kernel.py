# SPDX-License-Identifier: Apache-2.0
# Mean over the middle dimension, divided by the 4096 rows of the task's text instead of the rows there are.
# expected: incorrect

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def column_means(x, out, R, C, BR: tl.constexpr, BC: tl.constexpr):
    batch = tl.program_id(0)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    total = tl.zeros((BC,), tl.float32)
    for start in range(0, R, BR):
        r = start + tl.arange(0, BR)
        mask = (r[:, None] < R) & (c[None, :] < C)
        total += tl.sum(tl.load(x + batch * R * C + r[:, None] * C + c[None, :], mask=mask, other=0.0), 0)
    tl.store(out + batch * C + c, total / 4096.0, mask=c < C)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        x = x.contiguous()
        batch, R, C = x.shape
        out = torch.empty((batch, C), device=x.device, dtype=x.dtype)
        column_means[(batch, triton.cdiv(C, 128))](x, out, R, C, BR=32, BC=128)
        return out
