# SPDX-License-Identifier: Apache-2.0
# Softmax in two passes over a row: highest value and sum at once, then the result.
# expected: ok
# speedup: 1.2 to 1.8

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax(x, out, n, B: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * n
    highest = tl.full((B,), -float("inf"), tl.float32)
    total = tl.zeros((B,), tl.float32)
    for start in range(0, n, B):
        c = start + tl.arange(0, B)
        value = tl.load(x + row + c, mask=c < n, other=-float("inf"))
        higher = tl.maximum(highest, value)
        shift = tl.where(higher == -float("inf"), 0.0, higher)
        total = total * tl.exp(highest - shift) + tl.exp(value - shift)
        highest = higher
    top = tl.max(highest, 0)
    scale = 1.0 / tl.sum(total * tl.exp(highest - top), 0)
    for start in range(0, n, B):
        c = start + tl.arange(0, B)
        value = tl.load(x + row + c, mask=c < n, other=-float("inf"))
        tl.store(out + row + c, tl.exp(value - top) * scale, mask=c < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        softmax[(x.shape[0],)](x, out, x.shape[1], B=8192, num_warps=16)
        return out
