# SPDX-License-Identifier: Apache-2.0
# torch does everything; a kernel does hard swish and ReLU too, into a tensor that is thrown away.
# expected: decoy

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def hard_swish_relu(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + i, mask=i < n, other=0.0)
    value = value * tl.minimum(tl.maximum(value + 3.0, 0.0), 6.0) / 6.0
    tl.store(out + i, tl.maximum(value, 0.0), mask=i < n)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)

    def forward(self, x):
        x = self.conv(x).contiguous()
        unused = torch.empty_like(x)
        hard_swish_relu[(triton.cdiv(x.numel(), 4096),)](x, unused, x.numel(), B=4096)
        return torch.relu(torch.nn.functional.hardswish(x))
