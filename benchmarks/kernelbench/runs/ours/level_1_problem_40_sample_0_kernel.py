# SPDX-License-Identifier: Apache-2.0
# Layer norm of long rows: parts of a row give mean and squares, a second kernel joins and applies them.
# expected: ok
# speedup: 15 to 40

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def part_moments(x, means, squares, n, P: tl.constexpr, B: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    c = part * B + tl.arange(0, B)
    inside = c < n
    value = tl.load(x + row.to(tl.int64) * n + c, mask=inside, other=0.0)
    mean = tl.sum(value, 0) / tl.sum(inside.to(tl.float32), 0)
    apart = tl.where(inside, value - mean, 0.0)
    tl.store(means + row * P + part, mean)
    tl.store(squares + row * P + part, tl.sum(apart * apart, 0))


@triton.jit
def row_moments(means, squares, moments, n, eps, P, B: tl.constexpr, BP: tl.constexpr):
    row, p = tl.program_id(0), tl.arange(0, BP)
    inside = p < P
    count = tl.where(inside, tl.minimum(n - p * B, B), 0).to(tl.float32)
    mean = tl.load(means + row * P + p, mask=inside, other=0.0)
    whole = tl.sum(mean * count, 0) / n
    apart = mean - whole
    variance = (tl.sum(tl.load(squares + row * P + p, mask=inside, other=0.0) + apart * apart * count, 0)) / n
    tl.store(moments + 2 * row, whole)
    tl.store(moments + 2 * row + 1, 1.0 / tl.sqrt(variance + eps))


@triton.jit
def apply(x, moments, weight, bias, out, n, B: tl.constexpr):
    row = tl.program_id(0)
    c = tl.program_id(1) * B + tl.arange(0, B)
    at = row.to(tl.int64) * n + c
    value = (tl.load(x + at, mask=c < n) - tl.load(moments + 2 * row)) * tl.load(moments + 2 * row + 1)
    value = value * tl.load(weight + c, mask=c < n) + tl.load(bias + c, mask=c < n)
    tl.store(out + at, value, mask=c < n)


class ModelNew(nn.Module):
    def __init__(self, normalized_shape):
        super().__init__()
        self.ln = nn.LayerNorm(normalized_shape)

    def forward(self, x):
        x = x.contiguous()
        n = self.ln.weight.numel()
        rows, block = x.numel() // n, 4096
        P = triton.cdiv(n, block)
        means, squares = torch.empty((2, rows, P), device=x.device, dtype=torch.float32)
        moments = torch.empty((rows, 2), device=x.device, dtype=torch.float32)
        out = torch.empty_like(x)
        part_moments[(rows, P)](x, means, squares, n, P=P, B=block, num_warps=8)
        BP = triton.next_power_of_2(P)
        row_moments[(rows,)](means, squares, moments, n, self.ln.eps, P, B=block, BP=BP)
        weight, bias = self.ln.weight, self.ln.bias
        apply[(rows, P)](x, moments, weight, bias, out, n, B=block, num_warps=8)
        return out
