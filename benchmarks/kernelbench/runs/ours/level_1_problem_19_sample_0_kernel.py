# SPDX-License-Identifier: Apache-2.0
# ReLU, 4096 elements a program.
# expected: ok
# speedup: 0.9 to 1.1

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.maximum(tl.load(x + i, mask=i < n), 0.0), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        relu[(triton.cdiv(x.numel(), 4096),)](x, out, x.numel(), B=4096, num_warps=8)
        return out
