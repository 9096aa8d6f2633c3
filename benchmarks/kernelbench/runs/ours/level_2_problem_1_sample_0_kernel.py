# SPDX-License-Identifier: Apache-2.0
# torch convolves; one kernel does ReLU and adds the parameter.
# expected: ok
# speedup: 1.05 to 1.3

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_add(x, bias, out, C, S, B: tl.constexpr):
    plane = tl.program_id(0)
    i = tl.program_id(1) * B + tl.arange(0, B)
    at = plane * S + i
    value = tl.maximum(tl.load(x + at, mask=i < S), 0.0)
    tl.store(out + at, value + tl.load(bias + plane % C), mask=i < S)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, bias_shape):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.bias = nn.Parameter(torch.randn(bias_shape))

    def forward(self, x):
        x = self.conv(x).contiguous()
        N, C, H, W = x.shape
        out = torch.empty_like(x)
        relu_add[(N * C, triton.cdiv(H * W, 4096))](x, self.bias, out, C, H * W, B=4096, num_warps=8)
        return out
