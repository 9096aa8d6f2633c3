# SPDX-License-Identifier: Apache-2.0
# torch convolves; one kernel does ReLU and hard swish.
# expected: ok
# speedup: 1.5 to 2.5

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_hard_swish(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.maximum(tl.load(x + i, mask=i < n, other=0.0), 0.0)
    tl.store(out + i, value * tl.minimum((value + 3.0) / 6.0, 1.0), mask=i < n)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)

    def forward(self, x):
        x = self.conv(x).contiguous()
        out = torch.empty_like(x)
        relu_hard_swish[(triton.cdiv(x.numel(), 4096),)](x, out, x.numel(), B=4096, num_warps=8)
        return out
