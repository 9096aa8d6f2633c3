# SPDX-License-Identifier: Apache-2.0
# A depthwise convolution: a program takes 4096 pixels of one plane; the weights stay in registers.
# expected: ok
# speedup: 1.0 to 6.0

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def depthwise(x, weight, out, C, H, W, OW, count, stride, padding, K: tl.constexpr, B: tl.constexpr):
    plane = tl.program_id(0)
    pixel = tl.program_id(1) * B + tl.arange(0, B)
    top, left = pixel // OW * stride - padding, pixel % OW * stride - padding
    total = tl.zeros((B,), tl.float32)
    for a in tl.static_range(K):
        for b in tl.static_range(K):
            row, column = top + a, left + b
            inside = (pixel < count) & (row >= 0) & (row < H) & (column >= 0) & (column < W)
            value = tl.load(x + plane * H * W + row * W + column, mask=inside, other=0.0)
            total += value * tl.load(weight + plane % C * K * K + a * K + b)
    tl.store(out + plane * count + pixel, total, mask=pixel < count)


class ModelNew(nn.Module):
    def __init__(self, in_channels, kernel_size, stride=1, padding=0, bias=False):
        super().__init__()
        self.conv2d = nn.Conv2d(in_channels, in_channels, kernel_size, stride, padding, groups=in_channels, bias=bias)
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding

    def forward(self, x):
        x = x.contiguous()
        N, C, H, W = x.shape
        OH = (H + 2 * self.padding - self.kernel_size) // self.stride + 1
        OW = (W + 2 * self.padding - self.kernel_size) // self.stride + 1
        out = torch.empty((N, C, OH, OW), device=x.device, dtype=x.dtype)
        sizes = (C, H, W, OW, OH * OW, self.stride, self.padding)
        grid = (N * C, triton.cdiv(OH * OW, 4096))
        depthwise[grid](x, self.conv2d.weight, out, *sizes, K=self.kernel_size, B=4096, num_warps=16)
        return out
