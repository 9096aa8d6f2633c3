# SPDX-License-Identifier: Apache-2.0
# Mean squared error whose programs add to one sum without an atomic: they overwrite each other's.
# expected: unsafe

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_errors(a, b, total, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    error = tl.load(a + i, mask=i < n, other=0.0) - tl.load(b + i, mask=i < n, other=0.0)
    tl.store(total, tl.load(total) + tl.sum(error * error, 0) / n)


class ModelNew(nn.Module):
    def forward(self, predictions, targets):
        a, b = predictions.contiguous(), targets.contiguous()
        total = torch.zeros((), device=a.device, dtype=a.dtype)
        add_errors[(triton.cdiv(a.numel(), 4096),)](a, b, total, a.numel(), B=4096)
        return total
