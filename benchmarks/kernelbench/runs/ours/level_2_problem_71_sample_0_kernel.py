# SPDX-License-Identifier: Apache-2.0
# torch does everything; a kernel multiplies the result by 1, which only moves it: right, slower, and without coverage.
# expected: ok
# speedup: 0.7 to 1.0

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def times_one(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 1.0, mask=i < n)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, divisor):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.divisor = divisor

    def forward(self, x):
        x = torch.nn.functional.leaky_relu(self.conv(x) / self.divisor, negative_slope=0.01).contiguous()
        out = torch.empty_like(x)
        times_one[(triton.cdiv(x.numel(), 4096),)](x, out, x.numel(), B=4096)
        return out
