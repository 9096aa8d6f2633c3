# SPDX-License-Identifier: Apache-2.0
# GELU by the sigmoid approximation, which is off by up to 0.02.
# expected: incorrect

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gelu(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + i, mask=i < n, other=0.0)
    tl.store(out + i, value * tl.sigmoid(1.702 * value), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        gelu[(triton.cdiv(x.numel(), 2048),)](x, out, x.numel(), B=2048)
        return out
