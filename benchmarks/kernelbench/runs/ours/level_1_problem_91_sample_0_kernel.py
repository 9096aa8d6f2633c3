# SPDX-License-Identifier: Apache-2.0
# Sums from the end of each row, in blocks of 64: what is carried on is the last block's sum alone.
# expected: incorrect

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sums_from_the_end(x, out, n, B: tl.constexpr):
    row = tl.program_id(0) * n
    carried = 0.0
    for start in range(0, n, B):
        c = n - 1 - start - tl.arange(0, B)
        value = tl.load(x + row + c, mask=c >= 0, other=0.0)
        tl.store(out + row + c, tl.cumsum(value, 0) + carried, mask=c >= 0)
        carried = tl.sum(value, 0)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        sums_from_the_end[(x.shape[0],)](x, out, x.shape[1], B=64)
        return out
