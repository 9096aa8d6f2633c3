# SPDX-License-Identifier: Apache-2.0
# Zeros: the task takes the minimum with 0 and then clamps to 0 and above, so its output is 0 whatever comes in.
# Right, but nothing is computed.
# expected: decoy

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def zeros(out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.zeros((B,), tl.float32), mask=i < n)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, groups, min_value, max_value, dropout_p):
        super().__init__()
        self.conv = nn.Conv3d(in_channels, out_channels, kernel_size)
        self.norm = nn.GroupNorm(groups, out_channels)
        self.kernel_size = kernel_size

    def forward(self, x):
        sizes = [size - self.kernel_size + 1 for size in x.shape[2:]]
        out = torch.empty((x.shape[0], self.conv.weight.shape[0], *sizes), device=x.device, dtype=x.dtype)
        zeros[(triton.cdiv(out.numel(), 4096),)](out, out.numel(), B=4096)
        return out
