# SPDX-License-Identifier: Apache-2.0
# torch multiplies; one kernel does the rest. GELU of a tanh never leaves [-1, 1], so the last clamp is left out.
# expected: ok
# speedup: 1.0 to 1.1

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def tail(x, add, out, n, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + i, mask=i < n, other=0.0) + tl.load(add + i % N, mask=i < n, other=0.0)
    value = value * tl.sigmoid(value)
    value = 2.0 * tl.sigmoid(2.0 * value) - 1.0
    tl.store(out + i, 0.5 * value * (1.0 + tl.erf(value * 0.7071067811865476)), mask=i < n)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, add_value_shape):
        super().__init__()
        self.matmul = nn.Linear(in_features, out_features)
        self.add_value = nn.Parameter(torch.randn(add_value_shape))

    def forward(self, x):
        x = self.matmul(x).contiguous()
        out = torch.empty_like(x)
        tail[(triton.cdiv(x.numel(), 2048),)](x, self.add_value, out, x.numel(), x.shape[1], B=2048)
        return out
