# SPDX-License-Identifier: Apache-2.0
# A convolution by single pixels is a product of the weight and each sample's channels.
# expected: ok
# speedup: 0.8 to 3.0

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def pointwise(x, weight, out, CI, CO, S, BO: tl.constexpr, BS: tl.constexpr, BK: tl.constexpr):
    sample = tl.program_id(2).to(tl.int64)
    o = tl.program_id(1) * BO + tl.arange(0, BO)
    s = tl.program_id(0) * BS + tl.arange(0, BS)
    total = tl.zeros((BO, BS), dtype=tl.float32)
    for start in range(0, CI, BK):
        k = start + tl.arange(0, BK)
        left = tl.load(weight + o[:, None] * CI + k[None, :], mask=(o[:, None] < CO) & (k[None, :] < CI), other=0.0)
        at = sample * CI * S + k[:, None] * S + s[None, :]
        right = tl.load(x + at, mask=(k[:, None] < CI) & (s[None, :] < S), other=0.0)
        total = tl.dot(left, right, total, input_precision="ieee")
    at = sample * CO * S + o[:, None] * S + s[None, :]
    tl.store(out + at, total, mask=(o[:, None] < CO) & (s[None, :] < S))


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, bias=False):
        super().__init__()
        self.conv1d = nn.Conv2d(in_channels, out_channels, 1, bias=bias)

    def forward(self, x):
        x = x.contiguous()
        N, CI, H, W = x.shape
        CO = self.conv1d.weight.shape[0]
        out = torch.empty((N, CO, H, W), device=x.device, dtype=x.dtype)
        BO = max(16, min(128, triton.next_power_of_2(CO)))
        grid = (triton.cdiv(H * W, 128), triton.cdiv(CO, BO), N)
        pointwise[grid](x, self.conv1d.weight, out, CI, CO, H * W, BO=BO, BS=128, BK=32, num_warps=8)
        return out
