# SPDX-License-Identifier: Apache-2.0
# Max pooling: a program takes 4096 pixels of one plane and looks at the window of each.
# expected: ok
# speedup: 1.0 to 5.0

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def max_pool(x, out, H, W, OW, count, stride, padding, dilation, K: tl.constexpr, B: tl.constexpr):
    plane = tl.program_id(0)
    pixel = tl.program_id(1) * B + tl.arange(0, B)
    top, left = pixel // OW * stride - padding, pixel % OW * stride - padding
    best = tl.full((B,), -float("inf"), tl.float32)
    for a in tl.static_range(K):
        row = top + a * dilation
        for b in tl.static_range(K):
            column = left + b * dilation
            inside = (pixel < count) & (row >= 0) & (row < H) & (column >= 0) & (column < W)
            best = tl.maximum(best, tl.load(x + plane * H * W + row * W + column, mask=inside, other=-float("inf")))
    tl.store(out + plane * count + pixel, best, mask=pixel < count)


class ModelNew(nn.Module):
    def __init__(self, kernel_size, stride, padding, dilation):
        super().__init__()
        self.kernel_size, self.stride, self.padding, self.dilation = kernel_size, stride, padding, dilation

    def forward(self, x):
        x = x.contiguous()
        N, C, H, W = x.shape
        reach = self.dilation * (self.kernel_size - 1) + 1
        OH = (H + 2 * self.padding - reach) // self.stride + 1
        OW = (W + 2 * self.padding - reach) // self.stride + 1
        out = torch.empty((N, C, OH, OW), device=x.device, dtype=x.dtype)
        window = (self.stride, self.padding, self.dilation)
        grid = (N * C, triton.cdiv(OH * OW, 4096))
        max_pool[grid](x, out, H, W, OW, OH * OW, *window, K=self.kernel_size, B=4096, num_warps=16)
        return out
