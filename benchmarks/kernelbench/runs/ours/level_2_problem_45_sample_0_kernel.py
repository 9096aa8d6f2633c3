# SPDX-License-Identifier: Apache-2.0
# torch multiplies twice; kernels do the sigmoid in place and the log of the sum of exponentials.
# expected: ok
# speedup: 1.0 to 1.1

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sigmoid_in_place(x, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + i, tl.sigmoid(tl.load(x + i, mask=i < n, other=0.0)), mask=i < n)


@triton.jit
def log_sum_exp(x, out, n, B: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, B)
    value = tl.load(x + row * n + c, mask=c < n, other=-float("inf"))
    top = tl.max(value, 0)
    tl.store(out + row, tl.log(tl.sum(tl.exp(value - top), 0)) + top)


class ModelNew(nn.Module):
    def __init__(self, input_size, hidden_size, output_size):
        super().__init__()
        self.linear1 = nn.Linear(input_size, hidden_size)
        self.linear2 = nn.Linear(hidden_size, output_size)

    def forward(self, x):
        hidden = self.linear1(x).contiguous()
        sigmoid_in_place[(triton.cdiv(hidden.numel(), 4096),)](hidden, hidden.numel(), B=4096, num_warps=8)
        x = self.linear2(hidden).contiguous()
        out = torch.empty(x.shape[0], device=x.device, dtype=x.dtype)
        log_sum_exp[(x.shape[0],)](x, out, x.shape[1], B=triton.next_power_of_2(x.shape[1]))
        return out
