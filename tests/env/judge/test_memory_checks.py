# SPDX-License-Identifier: Apache-2.0
"""From a fault in memory to a verdict, with real processes."""

from dataclasses import replace

import pytest

from tests.env.judge.test_judge import OPTIONS, sharing
from tests.env.programs import HONEST, REFERENCE, candidate
from verl_kernel.env.judge.judge import Judge
from verl_kernel.env.result import EvalResult, EvalStatus
from verl_kernel.env.task import Task
from verl_kernel.rollout.feedback import format_feedback

TASK = Task(REFERENCE, task_id="fused")
pytestmark = pytest.mark.processes
KERNELS = """
@triton.jit
def unmasked(x, w, y, out, n, size, scale, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i) * tl.load(w + i % size) + tl.load(y + i)  # FAULT
    tl.store(out + i, tl.maximum(v, 0.0) * scale, mask=i < n)

@triton.jit
def spilling(x, w, y, out, n, size, scale, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n) * tl.load(w + i % size) + tl.load(y + i, mask=i < n)
    tl.store(out + i, tl.maximum(v, 0.0) * scale)  # FAULT
"""
COPIED = """
@triton.jit
def copied(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i, tl.load(x + i))
"""
OUTSIDE = ("unmasked", "spilling")


def program(kernel: str, around: str = "{}") -> str:
    """A candidate that is right but for the fault of its kernel."""
    call = f"{kernel}[(3,)](x, self.weight, y, out, 512, 64, self.scale, BLOCK=256)"
    return candidate(f"out = torch.empty_like(x)\n{around.format(call)}\nreturn out", KERNELS)


def marked_line(source: str, kernel: str) -> int:
    lines = source.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith(f"def {kernel}("))
    return next(number for number in range(first, len(lines)) if lines[number].endswith("# FAULT")) + 1


@pytest.fixture(scope="module")
def judges():
    with Judge(replace(OPTIONS, memory_checks="refuse"), seed=7) as refusing:
        others = {mode: sharing(refusing, replace(OPTIONS, memory_checks=mode), 7) for mode in ("record", "off")}
        yield {"refuse": refusing, **others}


@pytest.mark.parametrize("mode", ["refuse", "record", "off"])
@pytest.mark.parametrize("kernel", OUTSIDE)
def test_out_of_bounds_is_a_crash(judges, kernel, mode):
    source = program(kernel)
    result = judges[mode].evaluate(TASK, source)
    assert result.status is EvalStatus.CRASH
    assert result.error.type == "CompiledOutOfBounds"
    line = marked_line(source, kernel)
    assert result.error.message.startswith(f"line {line}, in {kernel}, ")
    assert f"line {line}" in format_feedback(result, 360)


@pytest.mark.parametrize(("made", "status"), [("empty", EvalStatus.INCORRECT), ("zeros", EvalStatus.OK)])
def test_what_the_constructor_leaves_unwritten_holds_no_number(judges, made, status):
    kept = f"        self.kept = torch.{made}(1 << 20)[:512].view(8, 64)\n"  # pages of its own, which hold zeros
    source = candidate("return self.right(x, y) + self.kept * 0").replace(
        "class ModelNew(Base):\n",
        f"class ModelNew(Base):\n    def __init__(self, *args):\n        super().__init__(*args)\n{kept}\n",
    )
    assert "self.kept = " in source
    assert judges["off"].evaluate(TASK, source).status is status


@pytest.mark.parametrize("kernel", OUTSIDE)
def test_a_fault_that_the_program_catches_is_a_fault(judges, kernel):
    caught = "try:\n    {}\nexcept Exception:\n    out = self.right(x, y)"
    assert judges["refuse"].evaluate(TASK, program(kernel, caught)).status is EvalStatus.CRASH


@pytest.mark.parametrize("mode", ["refuse", "record", "off"])
def test_an_honest_kernel_is_rewarded(judges, mode):
    result = judges[mode].evaluate(TASK, HONEST)
    assert result.rewarded
    assert result.memory_findings == (None if mode == "off" else ())
    assert EvalResult.model_validate_json(result.model_dump_json()) == result


def test_the_checks_change_nothing_else(judges):
    results = [judges[mode].evaluate(TASK, HONEST) for mode in ("refuse", "off")]
    dumped = [result.model_dump(exclude={"memory_findings", "stage_seconds"}) for result in results]
    assert dumped[0] == dumped[1]


def test_a_buffer_filled_before_an_ablation_is_no_fault(judges):
    body = (
        "if not hasattr(self, 'kept'):\n    self.kept = torch.empty(8, 512)\n    self.calls = 0\n"
        "row = self.kept[self.calls % 8]\ncopied[(1,)](x, row, B=512)\nself.calls += 1\n"
        "again = torch.empty(8, 512)\n"
        "for number in range(min(self.calls, 8)):\n    copied[(1,)](self.kept[number], again[number], B=512)\n"
        "return self.right(again[(self.calls - 1) % 8].view(8, 64), y)"
    )
    result = judges["refuse"].evaluate(TASK, candidate(body, COPIED))
    assert result.memory_findings == (), result.error


TUNED = """
@triton.autotune([triton.Config({"TURNS": 0}), triton.Config({"TURNS": 100})], key=["n"])
@triton.jit
def tuned(x, o, n, B: tl.constexpr, TURNS: tl.constexpr):
    i = tl.arange(0, B)
    for turn in range(TURNS):
        tl.store(o + i, tl.load(x + i) + tl.program_id(0) + turn)
    i += tl.program_id(0) * B
    tl.store(o + i, tl.load(x + i))
"""


@pytest.mark.parametrize(("turns", "status"), [(0, EvalStatus.OK), (1, EvalStatus.UNSAFE)])
def test_races_are_sought_in_the_chosen_configuration(judges, turns, status):
    """Watching those that are tried only would take seconds of the candidate's time for each."""
    body = "o = torch.empty_like(x)\ntuned[(2,)](x, o, 512, B=256)\nreturn self.right(o, y)"
    source = TUNED.replace('"TURNS": 0', f'"TURNS": {turns}')
    result = judges["refuse"].evaluate(TASK, candidate(body, source))
    assert result.status is status, result.error
