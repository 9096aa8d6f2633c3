# SPDX-License-Identifier: Apache-2.0
# LeakyReLU that returns its input: right for the inputs as drawn, none of which is negative.
# expected: incorrect

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def same(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, mask=i < n), mask=i < n)


class ModelNew(nn.Module):
    def __init__(self, negative_slope=0.01):
        super().__init__()
        self.negative_slope = negative_slope

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        same[(triton.cdiv(x.numel(), 4096),)](x, out, x.numel(), B=4096)
        return out
