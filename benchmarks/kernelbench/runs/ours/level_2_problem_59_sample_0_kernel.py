# SPDX-License-Identifier: Apache-2.0
# A linear layer whose swish is scaled inside of the sigmoid instead of outside.
# expected: incorrect

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def swish_scaled(x, out, scale, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + i, mask=i < n, other=0.0)
    tl.store(out + i, value * tl.sigmoid(value * scale), mask=i < n)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, scaling_factor):
        super().__init__()
        self.matmul = nn.Linear(in_features, out_features)
        self.scaling_factor = scaling_factor

    def forward(self, x):
        x = self.matmul(x).contiguous()
        out = torch.empty_like(x)
        swish_scaled[(triton.cdiv(x.numel(), 2048),)](x, out, self.scaling_factor, x.numel(), B=2048)
        return out
