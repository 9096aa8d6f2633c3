# SPDX-License-Identifier: Apache-2.0
# Running sums of rows: a program walks along a row and carries the sum so far.
# expected: ok
# speedup: 1.2 to 2.0

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def running_sums(x, out, n, B: tl.constexpr):
    row = tl.program_id(0) * n
    carried = 0.0
    for start in range(0, n, B):
        c = start + tl.arange(0, B)
        value = tl.load(x + row + c, mask=c < n, other=0.0)
        tl.store(out + row + c, tl.cumsum(value, 0) + carried, mask=c < n)
        carried += tl.sum(value, 0)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        running_sums[(x.shape[0],)](x, out, x.shape[1], B=4096, num_warps=8)
        return out
