# SPDX-License-Identifier: Apache-2.0
# Mean squared error: 1024 programs sum a part each, one adds the parts.
# expected: ok
# speedup: 2.5 to 3.5

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def part_errors(a, b, parts, n, per_part, B: tl.constexpr):
    part = tl.program_id(0)
    first = part.to(tl.int64) * per_part
    total = tl.zeros((B,), tl.float32)
    for start in range(0, per_part, B):
        i = first + start + tl.arange(0, B)
        error = tl.load(a + i, mask=i < n, other=0.0) - tl.load(b + i, mask=i < n, other=0.0)
        total += error * error
    tl.store(parts + part, tl.sum(total, 0))


@triton.jit
def mean_of_parts(parts, out, count, n, B: tl.constexpr):
    total = tl.zeros((B,), tl.float32)
    for start in range(0, count, B):
        i = start + tl.arange(0, B)
        total += tl.load(parts + i, mask=i < count, other=0.0)
    tl.store(out, tl.sum(total, 0) / n)


class ModelNew(nn.Module):
    def forward(self, predictions, targets):
        a, b = predictions.contiguous(), targets.contiguous()
        n, block = a.numel(), 4096
        per_part = triton.cdiv(triton.cdiv(n, 1024), block) * block
        count = triton.cdiv(n, per_part)
        parts = torch.empty(count, device=a.device, dtype=torch.float32)
        out = torch.empty((), device=a.device, dtype=a.dtype)
        part_errors[(count,)](a, b, parts, n, per_part, B=block, num_warps=8)
        mean_of_parts[(1,)](parts, out, count, float(n), B=1024)
        return out
