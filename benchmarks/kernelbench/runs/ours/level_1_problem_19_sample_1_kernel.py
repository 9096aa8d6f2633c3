# SPDX-License-Identifier: Apache-2.0
# ReLU by a kernel that Triton's compiler refuses: `y` is defined in one branch only.
# expected: compile_error

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    if n > 0:
        y = tl.maximum(tl.load(x + i, mask=i < n), 0.0)
    tl.store(out + i, y, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        relu[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), B=1024)
        return out
