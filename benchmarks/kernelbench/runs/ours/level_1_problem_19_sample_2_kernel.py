# SPDX-License-Identifier: Apache-2.0
# ReLU of the first 2^24 elements: all of them at reduced sizes, one in a hundred at the true one.
# expected: size_dependent

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.maximum(tl.load(x + i, mask=i < n), 0.0), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        work = min(x.numel(), 1 << 24)
        relu[(triton.cdiv(work, 4096),)](x.contiguous(), out, x.numel(), B=4096)
        return out
