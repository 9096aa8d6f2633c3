# SPDX-License-Identifier: Apache-2.0
# The mean over all outputs of a linear layer is one product with the mean of its weight's rows, and the logarithm of
# the sum of one exponential is the number itself: the large product is never formed.
# expected: ok
# speedup: 20 to 45

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mean_rows(weight, mean, N, K, rows, BN: tl.constexpr, BK: tl.constexpr):
    k = tl.program_id(0) * BK + tl.arange(0, BK)
    total = tl.zeros((BK,), tl.float32)
    for start in range(0, rows, BN):
        n = tl.program_id(1) * rows + start + tl.arange(0, BN)
        inside = (n[:, None] < N) & (k[None, :] < K)
        total += tl.sum(tl.load(weight + n[:, None] * K + k[None, :], mask=inside, other=0.0), 0)
    tl.atomic_add(mean + k, total / N, mask=k < K)


@triton.jit
def mean_constant(bias, subtract, out, N, B: tl.constexpr):
    total = tl.zeros((B,), tl.float32)
    for start in range(0, N, B):
        n = start + tl.arange(0, B)
        total += tl.load(bias + n, mask=n < N, other=0.0) - tl.load(subtract + n, mask=n < N, other=0.0)
    tl.store(out, tl.sum(total, 0) / N)


@triton.jit
def gelu_added(x, mean, constant, out, K, B: tl.constexpr):
    row = tl.program_id(0) * K
    total = tl.zeros((B,), tl.float32)
    for start in range(0, K, B):
        k = start + tl.arange(0, B)
        total += tl.load(x + row + k, mask=k < K, other=0.0) * tl.load(mean + k, mask=k < K, other=0.0)
    value = tl.sum(total, 0) + tl.load(constant)
    value = 0.5 * value * (1.0 + tl.erf(value * 0.7071067811865476))
    for start in range(0, K, B):
        k = start + tl.arange(0, B)
        tl.store(out + row + k, tl.load(x + row + k, mask=k < K) + value, mask=k < K)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, bias=True):
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features, bias=bias)
        self.subtract = nn.Parameter(torch.randn(out_features))

    def forward(self, x):
        x = x.contiguous()
        N, K = self.gemm.weight.shape
        mean = torch.zeros(K, device=x.device, dtype=torch.float32)
        constant = torch.empty(1, device=x.device, dtype=torch.float32)
        out = torch.empty_like(x)
        mean_rows[(triton.cdiv(K, 128), triton.cdiv(N, 256))](self.gemm.weight, mean, N, K, 256, BN=64, BK=128)
        mean_constant[(1,)](self.gemm.bias, self.subtract, constant, N, B=1024)
        gelu_added[(x.shape[0],)](x, mean, constant, out, K, B=1024)
        return out
