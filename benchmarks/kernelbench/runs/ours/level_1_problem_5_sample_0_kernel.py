# SPDX-License-Identifier: Apache-2.0
# A matrix times a number, 4096 elements a program.
# expected: ok
# speedup: 0.9 to 1.1

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def times(a, out, s, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(a + i, mask=i < n) * s, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, A, s):
        A = A.contiguous()
        out = torch.empty_like(A)
        times[(triton.cdiv(A.numel(), 4096),)](A, out, s, A.numel(), B=4096, num_warps=8)
        return out
