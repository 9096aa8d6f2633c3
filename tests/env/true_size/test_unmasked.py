# SPDX-License-Identifier: Apache-2.0
"""Kernels without masks, right at their tasks' sizes, where these are reduced."""

import pytest

from tests.env.true_size.programs import PRODUCT, ROWS
from verl_kernel.env.judge.judge import Judge
from verl_kernel.env.options import GymOptions
from verl_kernel.env.result import EvalStatus
from verl_kernel.env.task import Task

_HEAD = """
import torch
import triton
import triton.language as tl
from torch import nn
"""
TILED = f"""{_HEAD}
@triton.jit
def product(a, b, c, M, N, K, TILE: tl.constexpr, INNER: tl.constexpr):
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    columns = tl.program_id(1) * TILE + tl.arange(0, TILE)
    total = tl.zeros((TILE, TILE), tl.float32)
    for start in range(0, K, INNER):
        inner = start + tl.arange(0, INNER)
        one = tl.load(a + rows[:, None] * K + inner[None, :])
        other = tl.load(b + inner[:, None] * N + columns[None, :])
        total = tl.dot(one, other, total, input_precision="ieee")
    tl.store(c + rows[:, None] * N + columns[None, :], total)

class ModelNew(nn.Module):
    def forward(self, a, b):
        (M, K), N = a.shape, b.shape[1]
        c = torch.empty(M, N, device=a.device)
        product[(M // 128, N // 128)](a, b, c, M, N, K, TILE=128, INNER=32, num_warps=8)
        return c
"""
BY_ROWS = f"""{_HEAD}
@triton.jit
def scaled(x, w, out, WIDTH: tl.constexpr):
    at = tl.arange(0, WIDTH)
    row = tl.program_id(0) * WIDTH
    tl.store(out + row + at, tl.maximum(tl.load(x + row + at) * tl.load(w + at), 0.0))

class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width))

    def forward(self, x):
        out = torch.empty_like(x)
        scaled[(x.shape[0],)](x, self.weight, out, WIDTH=x.shape[1], num_warps=8)
        return out
"""
"""Its row is a power of two, as `tl.arange` asks."""


@pytest.mark.processes
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("task", "source"), [(PRODUCT, TILED), (ROWS, BY_ROWS)], ids=["tiles", "rows"])
def test_a_kernel_whose_tiles_fit_has_a_time(task, source, seed):
    with Judge(GymOptions(device="cpu", true_size="auto", memory_checks="refuse"), seed=seed) as judge:
        result = judge.evaluate(Task(task), source)
    assert result.status is EvalStatus.OK, result.error
    assert result.speedup is not None, result.true_size
