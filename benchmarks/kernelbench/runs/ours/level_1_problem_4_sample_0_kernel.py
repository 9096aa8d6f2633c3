# SPDX-License-Identifier: Apache-2.0
# A matrix times a vector: each program sums a part of a row, a second kernel adds the parts.
# expected: ok
# speedup: 0.7 to 1.2

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def partial_sums(a, b, parts, K, per_part, P: tl.constexpr, B: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    first = part * per_part
    last = tl.minimum(first + per_part, K)
    total = tl.zeros((B,), tl.float32)
    for start in range(first, last, B):
        k = start + tl.arange(0, B)
        left = tl.load(a + row.to(tl.int64) * K + k, mask=k < last, other=0.0)
        total += left * tl.load(b + k, mask=k < last, other=0.0)
    tl.store(parts + row * P + part, tl.sum(total, 0))


@triton.jit
def add_parts(parts, out, P: tl.constexpr):
    row = tl.program_id(0)
    tl.store(out + row, tl.sum(tl.load(parts + row * P + tl.arange(0, P)), 0))


class ModelNew(nn.Module):
    def forward(self, A, B):
        M, K = A.shape
        P, block = 8, 4096
        per_part = triton.cdiv(triton.cdiv(K, P), block) * block
        parts = torch.empty((M, P), device=A.device, dtype=torch.float32)
        out = torch.empty((M, 1), device=A.device, dtype=A.dtype)
        partial_sums[(M, P)](A.contiguous(), B.contiguous(), parts, K, per_part, P=P, B=block, num_warps=8)
        add_parts[(M,)](parts, out, P=P)
        return out
