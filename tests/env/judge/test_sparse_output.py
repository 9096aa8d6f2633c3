# SPDX-License-Identifier: Apache-2.0
"""An honest kernel whose output holds one number nearly everywhere."""

import pytest

from verl_kernel.env.judge.judge import Judge
from verl_kernel.env.options import GymOptions
from verl_kernel.env.result import EvalStatus
from verl_kernel.env.task import Task

SPARSE = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x - 3.0)

def get_inputs():
    return [torch.randn(256, 64)]

def get_init_inputs():
    return []
"""
SPARSE_KERNEL = """
import torch
import triton
import triton.language as tl
from torch import nn

@triton.jit
def above(x_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.maximum(tl.load(x_ptr + at) - 3.0, 0.0))

class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        above[(x.shape[0],)](x, out, BLOCK=64)
        return out
"""


@pytest.mark.processes
@pytest.mark.parametrize("seed", range(6))
def test_a_kernel_whose_output_is_mostly_zeros_is_no_decoy(seed):
    with Judge(GymOptions(device="cpu"), seed=seed) as judge:
        result = judge.evaluate(Task(SPARSE), SPARSE_KERNEL)
    assert (result.status, result.decoy_kernel) == (EvalStatus.OK, False)
