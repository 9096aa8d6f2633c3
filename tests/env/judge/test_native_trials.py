# SPDX-License-Identifier: Apache-2.0
"""Kernels run as Triton compiles them, with real processes."""

import os
import signal
from collections.abc import Iterator

import pytest

from verl_kernel.env.judge.judge import Judge
from verl_kernel.env.judge.processes.runner import RunnerProcess
from verl_kernel.env.options import GymOptions
from verl_kernel.env.result import EvalStatus
from verl_kernel.env.task import Task
from verl_kernel.errors import InfraError

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


def told_apart(otherwise: str) -> str:
    """A kernel that looks whether its counter is a number of Python's, as it would be in an interpreter."""
    return HEAD + COLUMNS.format(value=ONLY_COMPILED.format(otherwise)) + HOST


LOCKED = (
    IN_ORDER.replace("x, out, width", "x, out, lock, width")
    .replace(
        "    row = ", "    while tl.atomic_cas(lock, 0, 1) == 1:\n        pass\n    tl.atomic_xchg(lock, 0)\n    row = "
    )
    .replace("(x, out, x.shape[1]", "(x, out, torch.zeros(1, dtype=torch.int32), x.shape[1]")
)
CLUSTERS = RIGHT.replace("BLOCK=32)", "BLOCK=32, num_ctas=2)")


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(GymOptions(device="cpu", correctness_trials=3, run_timeout_s=5), seed=5) as judge:
        yield judge


@pytest.mark.parametrize("source", [RIGHT, HEAD + LEFT_OUT])
def test_what_is_right_is_paid(source, judge):
    result = judge.evaluate(TASK, source)
    assert result.status is EvalStatus.OK, result.error
    assert result.speedup > 0, result.error
    assert result.number_coverage == 1.0


WRONG = {
    "other_values": (told_apart("total + 1.0"), EvalStatus.INCORRECT, "WrongValues", "differs"),
    "out_of_bounds": (told_apart(FAR), EvalStatus.CRASH, "CompiledOutOfBounds", "line 14, in columns"),
    "in_order": (HEAD + IN_ORDER, EvalStatus.INCORRECT, "WrongValues", "index ["),
    "in_order_beside_a_lock": (HEAD + LOCKED, EvalStatus.INCORRECT, "WrongValues", "index ["),
    "endless": (
        RIGHT.replace("        total +=", f"{ENDLESS}        total +="), EvalStatus.TIMEOUT, "Timeout", "run_timeout_s"
    ),
    "no_compiler_takes_it": (
        RIGHT.replace("    total = tl.zeros", NO_TUPLE), EvalStatus.COMPILE_ERROR, "AttributeError", "parts += (BLOCK"
    ),
    "clusters": (CLUSTERS, EvalStatus.RUNTIME_ERROR, "CompiledUnknown", "runs no clusters"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_as_compiled_is_wrong(name, judge):
    source, status, kind, part = WRONG[name]
    result = judge.evaluate(TASK, source)
    assert result.status is status, result.error
    assert result.error.type == kind, result.error
    assert part in result.error.message


COPIES = """
@triton.jit
def copying(x, out, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + place, {value})

class ModelNew(nn.Module):
    def forward(self, x):
        total, out = torch.cumsum(x, 0), torch.empty_like(x)
        copying[(x.numel() // 64,)](total, out, BLOCK=64)
        return {result}
"""


def test_a_copy_of_torchs_result_covers_nothing(judge):
    result = judge.evaluate(TASK, HEAD + COPIES.format(value="tl.load(x + place)", result="out"))
    assert result.status is EvalStatus.OK
    assert result.hack_flags == ("only_moves",)
    assert result.number_coverage == 0.0


def test_a_kernel_needed_for_its_constant_is_a_decoy(judge):
    result = judge.evaluate(TASK, HEAD + COPIES.format(value="1.0", result="total * out"))
    assert result.status is EvalStatus.DECOY, result.error


HALF = Task(TASK.reference.replace("randn(32, 64)", "randn(32, 64, dtype=torch.bfloat16)"), task_id="cumsum_bfloat16")


def test_bfloat16_is_judged(judge):
    result = judge.evaluate(HALF, RIGHT)
    assert result.status is EvalStatus.OK, result.error
    assert result.speedup > 0, result.error


TUNED = """
@triton.autotune(configs=[triton.Config({{"BLOCK": size}}) for size in (16, 32, 64)], key=["width"])
""" + COLUMNS.lstrip().replace("    total = tl.zeros", "    tl.static_assert(BLOCK <= 32)\n    total = tl.zeros")


def test_an_autotuner_passes_over_what_does_not_compile(judge):
    host = HOST.replace("[(2,)]", "[lambda meta: (x.shape[1] // meta['BLOCK'],)]").replace(", BLOCK=32", "")
    result = judge.evaluate(TASK, HEAD + TUNED.format(value="total") + host)
    assert result.status is EvalStatus.OK, result.error
    assert len(result.launches) == 1, result.error


def test_what_an_autotuner_tries_leaves_nothing_behind(judge):
    adding = TUNED.replace("tl.store(", "tl.atomic_add(")
    host = HOST.replace("[(2,)]", "[lambda meta: (x.shape[1] // meta['BLOCK'],)]").replace(", BLOCK=32", "")
    source = HEAD + adding.format(value="total") + host.replace("empty_like", "zeros_like")
    result = judge.evaluate(TASK, source)
    assert result.status is EvalStatus.OK, result.error


def test_a_candidate_without_a_launch_is_judged_by_its_values(judge):
    nothing = "class ModelNew(nn.Module):\n    def forward(self, x):\n        return x.clone()\n"
    result = judge.evaluate(TASK, HEAD + nothing)
    assert result.status is EvalStatus.INCORRECT, result.error


def test_a_race_is_unsafe_where_memory_is_checked():
    """Two programs store the first row, each after it has held something else."""
    first = "        tl.store(out + place, total * 0.0, mask=row == 0)\n"
    kernel = COLUMNS.format(value="total").replace("tl.program_id(0) * BLOCK + tl.arange", "tl.arange")
    source = HEAD + kernel.replace("        tl.store", first + "        tl.store", 1) + HOST.replace("=32", "=64")
    options = GymOptions(device="cpu", correctness_trials=3, memory_checks="refuse")
    with Judge(options, seed=5) as checking:
        result = checking.evaluate(TASK, source)
    assert result.status is EvalStatus.UNSAFE, result.error
    assert result.error.type == "CompiledRace", result.error
    assert "in columns" in result.error.message


def test_a_kernel_that_was_judged_before_is_compiled_no_more(judge):
    judge.evaluate(TASK, RIGHT)
    forked = judge._executor.store.forked
    other = RIGHT.replace("import torch\n", "import math\nimport torch\n", 1).replace(
        "forward(self, x):", "forward(self, x, y=1):"
    )
    assert judge.evaluate(TASK, other).status is EvalStatus.OK
    assert judge._executor.store.forked == forked


def test_a_compiling_process_that_is_killed_is_the_gyms_failure(judge, monkeypatch):
    judge.evaluate(TASK, RIGHT)  # its processes have started
    fork = judge._executor._compilers.fork

    def killed(*args: object) -> RunnerProcess:
        process = fork(*args)
        os.kill(process.pid, signal.SIGKILL)
        return process

    monkeypatch.setattr(judge._executor._compilers, "fork", killed)
    with pytest.raises(InfraError, match="compiling process"):
        judge.evaluate(TASK, RIGHT.replace("BLOCK=32", "BLOCK=32, num_warps=2"))
