# SPDX-License-Identifier: Apache-2.0
# torch multiplies; one kernel does Mish twice: little to win, since the product takes nearly all of the time.
# expected: ok
# speedup: 1.0 to 1.1

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mish(x):
    softplus = tl.where(x > 20.0, x, tl.log(1.0 + tl.exp(tl.minimum(x, 20.0))))
    return x * (2.0 * tl.sigmoid(2.0 * softplus) - 1.0)


@triton.jit
def mish_twice(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, mish(mish(tl.load(x + i, mask=i < n, other=0.0))), mask=i < n)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        x = self.linear(x).contiguous()
        out = torch.empty_like(x)
        mish_twice[(triton.cdiv(x.numel(), 2048),)](x, out, x.numel(), B=2048)
        return out
