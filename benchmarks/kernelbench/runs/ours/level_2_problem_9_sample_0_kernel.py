# SPDX-License-Identifier: Apache-2.0
# A linear layer with subtraction, factor and ReLU in its last step.
# expected: ok
# speedup: 0.7 to 1.1

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def linear_tail(
    x, weight, bias, out, M, N, K, subtract, multiply, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        left = tl.load(x + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        right = tl.load(weight + n[None, :] * K + k[:, None], mask=(n[None, :] < N) & (k[:, None] < K), other=0.0)
        total = tl.dot(left, right, total, input_precision="ieee")
    value = total + tl.load(bias + n, mask=n < N, other=0.0)[None, :]
    value = tl.maximum((value - subtract) * multiply, 0.0)
    tl.store(out + m[:, None] * N + n[None, :], value, mask=(m[:, None] < M) & (n[None, :] < N))


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, subtract_value, multiply_value):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.subtract_value, self.multiply_value = subtract_value, multiply_value

    def forward(self, x):
        (M, K), N = x.shape, self.linear.weight.shape[0]
        out = torch.empty((M, N), device=x.device, dtype=x.dtype)
        grid = (triton.cdiv(M, 128), triton.cdiv(N, 128))
        numbers = (M, N, K, self.subtract_value, self.multiply_value)
        weight, bias = self.linear.weight, self.linear.bias
        linear_tail[grid](x.contiguous(), weight, bias, out, *numbers, BM=128, BN=128, BK=32, num_warps=8)
        return out
