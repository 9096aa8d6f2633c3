# SPDX-License-Identifier: Apache-2.0
# Frobenius norm whose sum starts in memory that nobody has written.
# expected: incorrect or unsafe

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_squares(x, total, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + i, mask=i < n, other=0.0)
    tl.atomic_add(total, tl.sum(value * value, 0))


@triton.jit
def divide(x, total, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, mask=i < n) / tl.sqrt(tl.load(total)), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        total = torch.empty(1, device=x.device, dtype=torch.float32)
        grid = (triton.cdiv(x.numel(), 4096),)
        add_squares[grid](x, total, x.numel(), B=4096)
        divide[grid](x, total, out, x.numel(), B=4096)
        return out
