# SPDX-License-Identifier: Apache-2.0
# GELU by the error function.
# expected: ok
# speedup: 0.9 to 1.1

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gelu(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + i, mask=i < n, other=0.0)
    tl.store(out + i, 0.5 * value * (1.0 + tl.erf(value * 0.7071067811865476)), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        gelu[(triton.cdiv(x.numel(), 2048),)](x, out, x.numel(), B=2048, num_warps=8)
        return out
