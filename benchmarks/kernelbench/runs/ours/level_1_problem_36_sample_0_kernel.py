# SPDX-License-Identifier: Apache-2.0
# RMS norm over channels: a program keeps all channels of some pixels, so x is read once.
# expected: ok
# speedup: 2.2 to 3.5

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rms_norm(x, out, C, S, eps, BC: tl.constexpr, BS: tl.constexpr):
    i = tl.program_id(1) * BS + tl.arange(0, BS)
    c = tl.arange(0, BC)
    at = tl.program_id(0).to(tl.int64) * C * S + c[:, None] * S + i[None, :]
    mask = (c[:, None] < C) & (i[None, :] < S)
    value = tl.load(x + at, mask=mask, other=0.0)
    rms = tl.sqrt(tl.sum(value * value, 0) / C + eps)
    tl.store(out + at, value / rms[None, :], mask=mask)


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.num_features = num_features
        self.eps = eps

    def forward(self, x):
        x = x.contiguous()
        N, C = x.shape[:2]
        S = x.numel() // (N * C)
        out = torch.empty_like(x)
        grid = (N, triton.cdiv(S, 128))
        rms_norm[grid](x, out, C, S, self.eps, BC=triton.next_power_of_2(C), BS=128, num_warps=8)
        return out
