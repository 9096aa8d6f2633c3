# SPDX-License-Identifier: Apache-2.0
# KL divergence in one pass over both inputs: a program takes a part, partial sums are added afterwards.
# expected: ok
# speedup: 4.5 to 6.0

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def part_divergences(p, t, parts, n, per_part, B: tl.constexpr):
    part = tl.program_id(0)
    first = part * per_part
    total = tl.zeros((B,), tl.float32)
    for start in range(0, per_part, B):
        i = first + start + tl.arange(0, B)
        target = tl.load(t + i, mask=i < n, other=1.0)
        logarithm = tl.log(tl.where(target > 0, target, 1.0)) - tl.log(tl.load(p + i, mask=i < n, other=1.0))
        total += tl.where(target > 0, target * logarithm, 0.0)
    tl.store(parts + part, tl.sum(total, 0))


@triton.jit
def add_parts(parts, out, count, rows, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out, tl.sum(tl.load(parts + i, mask=i < count, other=0.0), 0) / rows)


class ModelNew(nn.Module):
    def forward(self, predictions, targets):
        p, t = predictions.contiguous(), targets.contiguous()
        n, block = t.numel(), 4096
        per_part = triton.cdiv(triton.cdiv(n, 1024), block) * block
        count = triton.cdiv(n, per_part)
        parts = torch.empty(count, device=t.device, dtype=torch.float32)
        out = torch.empty((), device=t.device, dtype=t.dtype)
        part_divergences[(count,)](p, t, parts, n, per_part, B=block, num_warps=8)
        add_parts[(1,)](parts, out, count, t.shape[0], B=1024)
        return out
