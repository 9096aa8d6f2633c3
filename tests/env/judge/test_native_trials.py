# SPDX-License-Identifier: Apache-2.0
"""`kernelgym.execute`: kernels run as compiled, after the interpreter or alone, with real processes."""

import os
import signal
from collections.abc import Iterator
from dataclasses import replace

import pytest

from verl_kernel.env.judge.judge import Judge
from verl_kernel.env.judge.processes.runner import RunnerProcess
from verl_kernel.env.options import GymOptions
from verl_kernel.env.result import EvalStatus
from verl_kernel.env.task import Task
from verl_kernel.errors import InfraError, TaskError

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


LOCKED = (
    IN_ORDER.replace("x, out, width", "x, out, lock, width")
    .replace(
        "    row = ", "    while tl.atomic_cas(lock, 0, 1) == 1:\n        pass\n    tl.atomic_xchg(lock, 0)\n    row = "
    )
    .replace("(x, out, x.shape[1]", "(x, out, torch.zeros(1, dtype=torch.int32), x.shape[1]")
)
WRONG = {
    "other_values": (told_apart("total + 1.0"), EvalStatus.INCORRECT, "CompiledDiffers", "other values"),
    "out_of_bounds": (told_apart(FAR), EvalStatus.CRASH, "CompiledOutOfBounds", "line 14, in columns"),
    "in_order": (HEAD + IN_ORDER, EvalStatus.INCORRECT, "CompiledDiffers", "other values"),
    "in_order_beside_a_lock": (HEAD + LOCKED, EvalStatus.INCORRECT, "CompiledDiffers", "other values"),
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


@pytest.mark.parametrize("name", ["other_values", "in_order", "in_order_beside_a_lock"])
def test_the_interpreter_alone_takes_it_for_right(name, interpreting):
    assert interpreting.evaluate(TASK, WRONG[name][0]).status is EvalStatus.OK


CLUSTERS = RIGHT.replace("BLOCK=32)", "BLOCK=32, num_ctas=2)")


def test_what_the_executor_has_no_definition_for_gets_no_time(judge):
    result = judge.evaluate(TASK, CLUSTERS)
    assert result.status is EvalStatus.OK and result.speedup is None
    assert result.env["executed"].startswith("interpreted only: columns: the executor runs no clusters")


@pytest.fixture(scope="module")
def compiling() -> Iterator[Judge]:
    with Judge(GymOptions(device="cpu", execute="compiled", correctness_trials=3, run_timeout_s=5), seed=5) as judge:
        yield judge


@pytest.mark.parametrize("source", [RIGHT, HEAD + LEFT_OUT])
def test_what_is_right_compiled_is_paid(source, compiling, interpreting):
    one, other = compiling.evaluate(TASK, source), interpreting.evaluate(TASK, source)
    assert one.status is EvalStatus.OK and one.env["executed"] == "compiled", one.error
    assert one.number_coverage == other.number_coverage == 1.0
    assert one.launches == other.launches
    assert 0.5 < one.speedup / other.speedup < 2.0


ALONE = {
    "other_values": (WRONG["other_values"][0], EvalStatus.INCORRECT, "WrongValues"),
    "in_order": (WRONG["in_order"][0], EvalStatus.INCORRECT, "WrongValues"),
    "out_of_bounds": (WRONG["out_of_bounds"][0], EvalStatus.CRASH, "CompiledOutOfBounds"),
    "no_compiler_takes_it": (WRONG["no_compiler_takes_it"][0], EvalStatus.COMPILE_ERROR, "CompiledRefused"),
    "clusters": (CLUSTERS, EvalStatus.RUNTIME_ERROR, "CompiledUnknown"),
}


@pytest.mark.parametrize("name", ALONE)
def test_what_is_wrong_compiled_is_wrong(name, compiling):
    source, status, kind = ALONE[name]
    result = compiling.evaluate(TASK, source)
    assert result.status is status and result.error.type == kind, result.error


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


def test_a_kernel_that_copies_what_torch_computed_covers_nothing(compiling):
    result = compiling.evaluate(TASK, HEAD + COPIES.format(value="tl.load(x + place)", result="out"))
    assert result.status is EvalStatus.OK and result.hack_flags == ("only_moves",)
    assert result.number_coverage == 0.0


def test_a_kernel_whose_constant_is_all_that_is_needed_is_a_decoy(compiling):
    result = compiling.evaluate(TASK, HEAD + COPIES.format(value="1.0", result="total * out"))
    assert result.status is EvalStatus.DECOY, result.error


HALF = Task(TASK.reference.replace("randn(32, 64)", "randn(32, 64, dtype=torch.bfloat16)"), task_id="cumsum_bfloat16")


def test_bfloat16_is_judged_compiled_and_nowhere_else_on_a_cpu(compiling, judge):
    result = compiling.evaluate(HALF, RIGHT)
    assert result.status is EvalStatus.OK and result.speedup > 0, result.error
    with pytest.raises(TaskError, match=r"bfloat16.*set kernelgym\.execute to compiled"):
        judge.evaluate(HALF, RIGHT)


def test_what_another_judge_has_learnt_of_a_reference_does_not_let_bfloat16_pass(tmp_path):
    options = GymOptions(device="cpu", execute="compiled", correctness_trials=2, reference_cache=str(tmp_path))
    with Judge(options, seed=5) as first:
        assert first.evaluate(HALF, RIGHT).status is EvalStatus.OK
    with Judge(replace(options, execute="interpreted"), seed=5) as second, pytest.raises(TaskError, match="bfloat16"):
        second.evaluate(HALF, RIGHT)


TUNED = """
@triton.autotune(configs=[triton.Config({{"BLOCK": size}}) for size in (16, 32, 64)], key=["width"])
""" + COLUMNS.lstrip().replace("    total = tl.zeros", "    tl.static_assert(BLOCK <= 32)\n    total = tl.zeros")


def test_an_autotuner_passes_over_what_does_not_compile(compiling):
    host = HOST.replace("[(2,)]", "[lambda meta: (x.shape[1] // meta['BLOCK'],)]").replace(", BLOCK=32", "")
    result = compiling.evaluate(TASK, HEAD + TUNED.format(value="total") + host)
    assert result.status is EvalStatus.OK and len(result.launches) == 1, result.error


def test_what_an_autotuner_tries_leaves_nothing_behind(compiling):
    adding = TUNED.replace("tl.store(", "tl.atomic_add(")
    host = HOST.replace("[(2,)]", "[lambda meta: (x.shape[1] // meta['BLOCK'],)]").replace(", BLOCK=32", "")
    source = HEAD + adding.format(value="total") + host.replace("empty_like", "zeros_like")
    result = compiling.evaluate(TASK, source)
    assert result.status is EvalStatus.OK, result.error


def test_a_candidate_without_a_launch_is_judged_by_its_values(compiling):
    nothing = "class ModelNew(nn.Module):\n    def forward(self, x):\n        return x.clone()\n"
    result = compiling.evaluate(TASK, HEAD + nothing)
    assert result.status is EvalStatus.INCORRECT, result.error


def test_a_race_is_unsafe_where_memory_is_checked():
    """Two programs store the first row, each after it has held something else."""
    first = "        tl.store(out + place, total * 0.0, mask=row == 0)\n"
    kernel = COLUMNS.format(value="total").replace("tl.program_id(0) * BLOCK + tl.arange", "tl.arange")
    source = HEAD + kernel.replace("        tl.store", first + "        tl.store", 1) + HOST.replace("=32", "=64")
    options = GymOptions(device="cpu", execute="compiled", correctness_trials=3, memory_checks="refuse")
    with Judge(options, seed=5) as checking:
        result = checking.evaluate(TASK, source)
    assert result.status is EvalStatus.UNSAFE and result.error.type == "CompiledRace", result.error
    assert "in columns" in result.error.message


def test_a_kernel_that_was_judged_before_is_compiled_no_more(compiling):
    compiling.evaluate(TASK, RIGHT)
    forked = compiling._executor.store.forked
    other = RIGHT.replace("import torch\n", "import math\nimport torch\n", 1).replace(
        "forward(self, x):", "forward(self, x, y=1):"
    )
    assert compiling.evaluate(TASK, other).status is EvalStatus.OK
    assert compiling._executor.store.forked == forked


@pytest.mark.parametrize("which", ["compiling", "judge"])
def test_a_compiling_process_that_is_killed_is_the_gyms_failure(which, request, monkeypatch):
    judge = request.getfixturevalue(which)
    judge.evaluate(TASK, RIGHT)  # its processes have started
    fork = judge._executor._compilers.fork

    def killed(*args: object) -> RunnerProcess:
        process = fork(*args)
        os.kill(process.pid, signal.SIGKILL)
        return process

    monkeypatch.setattr(judge._executor._compilers, "fork", killed)
    with pytest.raises(InfraError, match="compiling process"):
        judge.evaluate(TASK, RIGHT.replace("BLOCK=32", "BLOCK=32, num_warps=2"))
