# SPDX-License-Identifier: Apache-2.0
# A linear layer with ReLU and division in its last step; tiles are visited in groups, which share rows in L2.
# expected: ok
# speedup: 0.7 to 1.1

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def linear_relu(
    x, weight, bias, out, M, N, K, factor, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr
):
    rows, columns = tl.cdiv(M, BM), tl.cdiv(N, BN)
    tile = tl.program_id(0)
    first = tile // (GROUP * columns) * GROUP
    height = tl.minimum(rows - first, GROUP)
    m = (first + tile % (GROUP * columns) % height) * BM + tl.arange(0, BM)
    n = (tile % (GROUP * columns) // height) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        left = tl.load(x + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        right = tl.load(weight + n[None, :] * K + k[:, None], mask=(n[None, :] < N) & (k[:, None] < K), other=0.0)
        total = tl.dot(left, right, total, input_precision="ieee")
    value = tl.maximum(total + tl.load(bias + n, mask=n < N, other=0.0)[None, :], 0.0) * factor
    tl.store(out + m[:, None] * N + n[None, :], value, mask=(m[:, None] < M) & (n[None, :] < N))


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, divisor):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.divisor = divisor

    def forward(self, x):
        (M, K), N = x.shape, self.linear.weight.shape[0]
        out = torch.empty((M, N), device=x.device, dtype=x.dtype)
        grid = (triton.cdiv(M, 128) * triton.cdiv(N, 64),)
        given = (x.contiguous(), self.linear.weight, self.linear.bias, out, M, N, K, 1.0 / self.divisor)
        linear_relu[grid](*given, BM=128, BN=64, BK=32, GROUP=8)
        return out
