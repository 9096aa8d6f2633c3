# SPDX-License-Identifier: Apache-2.0
"""`execute: both`: kernels that are right in one world only, with real processes."""

from collections.abc import Iterator

import pytest

from verl_kernel.env.judge.judge import Judge
from verl_kernel.env.options import GymOptions
from verl_kernel.env.result import EvalStatus
from verl_kernel.env.task import Task

TASK = Task(
    """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return torch.cumsum(x, 0)

def get_inputs():
    return [torch.randn(32, 64)]

def get_init_inputs():
    return []
""",
    task_id="cumsum",
)
HEAD = """
import torch
import triton
import triton.language as tl
from torch import nn

"""
HOST = """
class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        columns[(2,)](x, out, x.shape[0], x.shape[1], BLOCK=32)
        return out
"""
COLUMNS = """
@triton.jit
def columns(x, out, rows, width, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for row in range(rows):
        total += tl.load(x + row * width + place)
        tl.store(out + row * width + place, {value})
"""
IN_ORDER = """
@triton.jit
def following(x, out, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    place = tl.arange(0, BLOCK)
    total = tl.load(x + row * width + place)
    total += tl.load(out + (row - 1) * width + place, mask=place < width * row, other=0.0)
    tl.store(out + row * width + place, total)

class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        following[(x.shape[0],)](x, out, x.shape[1], BLOCK=64)
        return out
"""
LEFT_OUT = """
@triton.jit
def adding(x, out, rows, width, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x + place)
    tl.store(out + place, total)
    for row in range(1, rows):
        total += tl.load(x + row * width + place)
        tl.store(out + row * width + place, total, mask=total == total)

class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        adding[(2,)](x, out, x.shape[0], x.shape[1], BLOCK=32)
        return out
"""
ONLY_COMPILED = "total if isinstance(row, int) else {}"
ENDLESS = """        if not isinstance(row, int):
            while width > 0:
                tl.atomic_add(out + place, 1.0)
"""
FAR = "total + tl.load(x + rows * width * 4096)"
NO_TUPLE = "    parts = ()\n    parts += (BLOCK, print)[:1]\n    total = tl.zeros"
RIGHT = HEAD + COLUMNS.format(value="total") + HOST

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(GymOptions(device="cpu", execute="both", correctness_trials=3, run_timeout_s=5), seed=5) as judge:
        yield judge


@pytest.fixture(scope="module")
def interpreting() -> Iterator[Judge]:
    with Judge(GymOptions(device="cpu", correctness_trials=3), seed=5) as judge:
        yield judge


@pytest.mark.parametrize("source", [RIGHT, HEAD + LEFT_OUT])
def test_what_is_right_in_both_worlds_gets_the_same_time(source, judge, interpreting):
    both, one = judge.evaluate(TASK, source), interpreting.evaluate(TASK, source)
    assert both.status is EvalStatus.OK, both.error
    assert both.env["executed"] == "interpreted and compiled" and "executed" not in one.env
    assert both.speedup == one.speedup
    assert [launch.name for launch in both.launches] == [launch.name for launch in one.launches]


def told_apart(otherwise: str) -> str:
    """A kernel that knows by its counter, which is a number in the interpreter only, whether it is compiled."""
    return HEAD + COLUMNS.format(value=ONLY_COMPILED.format(otherwise)) + HOST


WRONG = {
    "other_values": (told_apart("total + 1.0"), EvalStatus.INCORRECT, "CompiledDiffers", "other values"),
    "out_of_bounds": (told_apart(FAR), EvalStatus.CRASH, "CompiledOutOfBounds", "line 14, in columns"),
    "in_order": (HEAD + IN_ORDER, EvalStatus.INCORRECT, "CompiledDiffers", "other values"),
    "endless": (
        RIGHT.replace("        total +=", f"{ENDLESS}        total +="), EvalStatus.TIMEOUT, "Timeout", "run_timeout_s"
    ),
    "no_compiler_takes_it": (
        RIGHT.replace("    total = tl.zeros", NO_TUPLE), EvalStatus.COMPILE_ERROR, "CompiledRefused", "in columns, "
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_as_compiled_is_wrong(name, judge):
    source, status, kind, part = WRONG[name]
    result = judge.evaluate(TASK, source)
    assert result.status is status and result.error.type == kind, result.error
    assert part in result.error.message


@pytest.mark.parametrize("name", ["other_values", "in_order"])
def test_the_interpreter_alone_takes_it_for_right(name, interpreting):
    assert interpreting.evaluate(TASK, WRONG[name][0]).status is EvalStatus.OK


def test_what_the_executor_has_no_definition_for_gets_no_time(judge):
    clusters = RIGHT.replace("BLOCK=32)", "BLOCK=32, num_ctas=2)")
    result = judge.evaluate(TASK, clusters)
    assert result.status is not EvalStatus.OK or (
        result.speedup is None and "interpreted only" in result.env["executed"]
    )
