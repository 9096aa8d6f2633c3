# SPDX-License-Identifier: Apache-2.0
# torch multiplies; one kernel does swish, half, clamp and tanh. The last clamp of the task changes nothing.
# expected: ok
# speedup: 1.0 to 1.1

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def activations(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + i, mask=i < n, other=0.0)
    value = tl.minimum(tl.maximum(value * tl.sigmoid(value) * 0.5, -1.0), 1.0)
    tl.store(out + i, 2.0 * tl.sigmoid(2.0 * value) - 1.0, mask=i < n)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, bias=True):
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features, bias=bias)

    def forward(self, x):
        x = self.gemm(x).contiguous()
        out = torch.empty_like(x)
        activations[(triton.cdiv(x.numel(), 2048),)](x, out, x.numel(), B=2048)
        return out
