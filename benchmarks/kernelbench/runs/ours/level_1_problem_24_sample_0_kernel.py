# SPDX-License-Identifier: Apache-2.0
# LogSoftmax whose loads have no mask: it reads behind the end of the last row.
# expected: crash

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def log_softmax(x, out, n, B: tl.constexpr):
    row = tl.program_id(0) * n
    highest = -float("inf")
    total = 0.0
    for start in range(0, n, B):
        c = start + tl.arange(0, B)
        value = tl.where(c < n, tl.load(x + row + c), -float("inf"))
        higher = tl.maximum(highest, tl.max(value, 0))
        total = total * tl.exp(highest - higher) + tl.sum(tl.exp(value - higher), 0)
        highest = higher
    shift = highest + tl.log(total)
    for start in range(0, n, B):
        c = start + tl.arange(0, B)
        tl.store(out + row + c, tl.load(x + row + c) - shift, mask=c < n)


class ModelNew(nn.Module):
    def __init__(self, dim=1):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        log_softmax[(x.shape[0],)](x, out, x.shape[1], B=4096)
        return out
