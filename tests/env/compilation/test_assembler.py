# SPDX-License-Identifier: Apache-2.0
"""Registers that do not fit are stored in memory, and charged: programs that differ in nothing but their warps."""

import pytest

from verl_kernel.env.compilation import translation
from verl_kernel.env.executor.ptx.parser import parse
from verl_kernel.env.judge.judge import Judge
from verl_kernel.env.options import GymOptions
from verl_kernel.env.task import Task

ROWS = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)

def get_inputs():
    return [torch.randn(264, 8192)]

def get_init_inputs():
    return []
"""
SOURCE = """
import torch
import triton
import triton.language as tl
from torch import nn

@triton.jit
def rows(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * n + tl.arange(0, BLOCK)
    e = tl.exp(tl.load(x + at) - tl.max(tl.load(x + at), 0))
    tl.store(out + at, e / tl.sum(e, 0))

class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        rows[(x.shape[0],)](x, out, x.shape[1], BLOCK=8192, num_warps=WARPS)
        return out
"""


@pytest.mark.processes
def test_a_kernel_that_spills_takes_longer():
    with Judge(GymOptions(device="cpu", correctness_trials=2), seed=3) as judge:
        one, four, eight = (
            judge.evaluate(Task(ROWS), SOURCE.replace("WARPS", str(warps))).kernel_ms.median for warps in (1, 4, 8)
        )
    assert one > 1.05 * four
    assert four == eight


def test_what_fits_is_not_assembled(monkeypatch):
    monkeypatch.setattr(translation.subprocess, "run", lambda *args, **options: pytest.fail("it was assembled"))
    text = ".version 8.7\n.target sm_89\n.address_size 64\n.visible .entry kernel()\n{\nret;\n}\n"
    assert translation.spills(text, parse(text), 4) == 0
