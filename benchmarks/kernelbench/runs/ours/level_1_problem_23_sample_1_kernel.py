# SPDX-License-Identifier: Apache-2.0
# Softmax of zeros: each of 393216 shares is so small that 0 is within an absolute tolerance of 1e-4.
# expected: incorrect

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def zeros(out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.zeros((B,), tl.float32), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        zeros[(triton.cdiv(x.numel(), 4096),)](out, x.numel(), B=4096)
        return out
