# SPDX-License-Identifier: Apache-2.0
# Cross entropy in one pass over the predictions; losses of rows are added by a second kernel.
# expected: ok
# speedup: 2.0 to 3.5

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_losses(x, target, losses, n, B: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, B)
    value = tl.load(x + row.to(tl.int64) * n + c, mask=c < n, other=-float("inf"))
    top = tl.max(value, 0)
    total = tl.sum(tl.exp(value - top), 0)
    wanted = tl.load(x + row.to(tl.int64) * n + tl.load(target + row))
    tl.store(losses + row, tl.log(total) + top - wanted)


@triton.jit
def mean_of(losses, out, rows, B: tl.constexpr):
    total = tl.zeros((B,), tl.float32)
    for start in range(0, rows, B):
        i = start + tl.arange(0, B)
        total += tl.load(losses + i, mask=i < rows, other=0.0)
    tl.store(out, tl.sum(total, 0) / rows)


class ModelNew(nn.Module):
    def forward(self, predictions, targets):
        x = predictions.contiguous()
        rows, n = x.shape
        losses = torch.empty(rows, device=x.device, dtype=torch.float32)
        out = torch.empty((), device=x.device, dtype=x.dtype)
        row_losses[(rows,)](x, targets.contiguous(), losses, n, B=triton.next_power_of_2(n), num_warps=8)
        mean_of[(1,)](losses, out, rows, B=4096, num_warps=8)
        return out
