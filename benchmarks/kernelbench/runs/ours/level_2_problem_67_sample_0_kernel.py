# SPDX-License-Identifier: Apache-2.0
# torch convolves; one kernel does GELU and the mean of a plane, so no activation is written.
# expected: ok
# speedup: 1.1 to 1.5

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gelu_mean(x, out, S, B: tl.constexpr):
    plane = tl.program_id(0)
    total = tl.zeros((B,), tl.float32)
    for start in range(0, S, B):
        i = start + tl.arange(0, B)
        value = tl.load(x + plane * S + i, mask=i < S, other=0.0)
        total += 0.5 * value * (1.0 + tl.erf(value * 0.7071067811865476))
    tl.store(out + plane, tl.sum(total, 0) / S)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)

    def forward(self, x):
        x = self.conv(x).contiguous()
        N, C, H, W = x.shape
        out = torch.empty((N, C), device=x.device, dtype=x.dtype)
        gelu_mean[(N * C,)](x, out, H * W, B=4096, num_warps=8)
        return out
