# SPDX-License-Identifier: Apache-2.0
# A product whose loop takes whole blocks of 64 columns only, which is right at the task's own sizes.
# expected: ok
# speedup: 0.6 to 0.9

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def product(a, b, out, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for block in range(K // BK):
        k = block * BK + tl.arange(0, BK)
        left = tl.load(a + m[:, None] * K + k[None, :], mask=m[:, None] < M, other=0.0)
        right = tl.load(b + k[:, None] * N + n[None, :], mask=n[None, :] < N, other=0.0)
        total = tl.dot(left, right, total, input_precision="ieee")
    tl.store(out + m[:, None] * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N))


class ModelNew(nn.Module):
    def forward(self, A, B):
        (M, K), N = A.shape, B.shape[1]
        out = torch.empty((M, N), device=A.device, dtype=A.dtype)
        grid = (triton.cdiv(M, 64), triton.cdiv(N, 64))
        product[grid](A.contiguous(), B.contiguous(), out, M, N, K, BM=64, BN=64, BK=64)
        return out
