# SPDX-License-Identifier: Apache-2.0
# torch multiplies; one kernel does GELU and softmax of a row.
# expected: ok
# speedup: 1.0 to 1.1

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gelu_softmax(x, out, n, B: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, B)
    value = tl.load(x + row * n + c, mask=c < n, other=0.0)
    value = 0.5 * value * (1.0 + tl.erf(value * 0.7071067811865476))
    value = tl.where(c < n, value, -float("inf"))
    share = tl.exp(value - tl.max(value, 0))
    tl.store(out + row * n + c, share / tl.sum(share, 0), mask=c < n)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        x = self.linear(x).contiguous()
        out = torch.empty_like(x)
        gelu_softmax[(x.shape[0],)](x, out, x.shape[1], B=triton.next_power_of_2(x.shape[1]), num_warps=8)
        return out
