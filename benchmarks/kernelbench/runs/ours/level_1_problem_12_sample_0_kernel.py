# SPDX-License-Identifier: Apache-2.0
# Rows scaled by a vector: a program takes a part of a row.
# expected: ok
# speedup: 0.9 to 1.5

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scaled_rows(a, b, out, M, B: tl.constexpr):
    row = tl.program_id(0)
    c = tl.program_id(1) * B + tl.arange(0, B)
    value = tl.load(b + row * M + c, mask=c < M)
    tl.store(out + row * M + c, value * tl.load(a + row), mask=c < M)


class ModelNew(nn.Module):
    def forward(self, A, B):
        N, M = B.shape
        B = B.contiguous()
        out = torch.empty_like(B)
        scaled_rows[(N, triton.cdiv(M, 1024))](A.contiguous(), B, out, M, B=1024)
        return out
