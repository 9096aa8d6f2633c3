# SPDX-License-Identifier: Apache-2.0
# Hinge loss in one pass; programs add their shares of the mean by an atomic.
# expected: ok
# speedup: 5.0 to 8.0

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def hinge(x, target, out, columns, n, B: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((B,), tl.float32)
    for start in range(0, columns, B):
        c = start + tl.arange(0, B)
        value = tl.load(x + row.to(tl.int64) * columns + c, mask=c < columns, other=0.0)
        loss = tl.maximum(1.0 - value * tl.load(target + c, mask=c < columns, other=0.0), 0.0)
        total += tl.where(c < columns, loss, 0.0)
    tl.atomic_add(out, tl.sum(total, 0) / n)


class ModelNew(nn.Module):
    def forward(self, predictions, targets):
        x = predictions.contiguous()
        rows, columns = x.shape
        out = torch.zeros((), device=x.device, dtype=x.dtype)
        hinge[(rows,)](x, targets.contiguous(), out, columns, float(x.numel()), B=4096, num_warps=8)
        return out
