# SPDX-License-Identifier: Apache-2.0
"""Making code costs a candidate none of its own time, and has an end of its own."""

import time
from contextlib import ExitStack

import pytest

from tests.env.judge.compiling.test_process import UNIT, Pretended
from tests.env.judge.test_native_trials import CUMSUM
from tests.env.programs import program
from verl_kernel.env.compilation.targets import CODE_S, COMPILE_S
from verl_kernel.env.judge.compiling import code
from verl_kernel.env.judge.compiling.code import CodeTime
from verl_kernel.env.judge.compiling.process import CompilingProcess
from verl_kernel.env.judge.processes.own_time import backstop_s
from verl_kernel.env.options import GymOptions
from verl_kernel.env.pool.judge_process import evaluation_limit_s
from verl_kernel.env.result import EvalStatus

OPTIONS = GymOptions(device="cpu", correctness_trials=1, run_timeout_s=2.0, memory_mb=1024, static_check="off")
LONG = """
@triton.jit
def columns(x, out, rows, width, BLOCK: tl.constexpr, STEPS: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for row in range(rows):
        value = tl.load(x + row * width + place)
        for step in tl.static_range(STEPS):
            value = tl.where(value == step + 1000, tl.sin(value + step), value)
        total += value
        tl.store(out + row * width + place, total)
"""
CONFIGS = '@triton.autotune([triton.Config({"STEPS": steps}, num_warps=1) for steps in (30, 31, 32, 33)], key=["rows"])'
CALL = "columns[(2,)](x, out, x.shape[0], x.shape[1], BLOCK=32{steps})"
TUNED = program(f"{CONFIGS}\n{LONG.strip()}", f"out = torch.empty_like(x)\n{CALL.format(steps='')}\nreturn out")


def endless(launch: str) -> str:
    """A candidate that launches one kernel after another, each of which must be compiled."""
    return program(LONG, f"out = torch.empty_like(x)\nfor steps in range(1, 5000):\n    {launch}\nreturn out")


PLAIN = CALL.format(steps=", STEPS=steps")
CAUGHT = f"try:\n        {PLAIN}\n    except Exception:\n        pass"


@pytest.mark.exhaustive
@pytest.mark.processes
def test_compiling_many_configurations_costs_no_time(judge):
    result = judge.evaluate(CUMSUM, TUNED)
    assert result.status is EvalStatus.OK, result.error
    assert sum(result.stage_seconds.values()) > 2 * OPTIONS.run_timeout_s, "this proves nothing"


@pytest.mark.processes
def test_an_endless_supply_of_kernels_ends_in_a_sentence(judge, monkeypatch):
    monkeypatch.setattr(code, "CODE_S", 3.0)
    begun = time.monotonic()
    result = judge.evaluate(CUMSUM, endless(PLAIN))
    assert result.status is EvalStatus.COMPILE_ERROR, result.error
    assert result.error.type == "CompileTimeout", result.error
    assert "in columns" in result.error.message
    assert "launch fewer kernels" in result.error.message
    assert time.monotonic() - begun < backstop_s(3.0)


@pytest.mark.exhaustive
@pytest.mark.processes
def test_asking_beyond_the_budget_costs_the_candidates_time(judge, monkeypatch):
    monkeypatch.setattr(code, "CODE_S", 1.0)
    assert judge.evaluate(CUMSUM, endless(CAUGHT)).status in (EvalStatus.TIMEOUT, EvalStatus.COMPILE_ERROR)


def test_time_waits_only_while_code_is_made():
    spent = CodeTime(60.0)
    with spent.making():
        time.sleep(0.2)
        before = spent.waited_ns()
        assert before >= 0.2e9
    after = spent.waited_ns()
    time.sleep(0.1)
    assert before <= after == spent.waited_ns()


def test_a_process_has_what_is_left_of_the_budget():
    spent = CodeTime(COMPILE_S + 1)
    assert spent.left_s == COMPILE_S
    spent.charge(2.0)
    assert COMPILE_S - 2 < spent.left_s <= COMPILE_S - 1
    spent.charge(COMPILE_S)
    assert spent.left_s == 0.0


def test_a_machine_that_is_far_too_busy_ends_it_too(monkeypatch):
    monkeypatch.setattr("verl_kernel.env.judge.compiling.code.WALL_FACTOR", 0.1)
    spent = CodeTime(1.0)
    with spent.making():
        time.sleep(0.15)
    assert spent.left_s == 0.0


def test_one_kernels_sentence_is_another_than_that_of_all():
    spent = CodeTime(60.0)
    one, all_ = spent.late(COMPILE_S).message, spent.late(1.0).message
    assert "30 s" in one
    assert "fewer kernels" not in one
    assert "60 s" in all_
    assert "launch fewer kernels" in all_


@pytest.mark.parametrize("end", [TimeoutError("late"), {"compiled": 1}])
def test_what_ends_badly_is_charged_as_well(end):
    process = CompilingProcess(Pretended(end), granted_s=5.0)
    process.asked({"translate": UNIT.to_json()}, lambda reply: reply, UNIT)
    assert process.used_s == Pretended.used_s


def test_a_judges_limit_comes_after_all_that_may_be_made():
    shorter = GymOptions(device="cpu")
    within = 2 * shorter.reference_timeout_s + 4 * shorter.load_timeout_s + shorter.run_timeout_s + CODE_S
    assert evaluation_limit_s(shorter) > 10 * within


class EndingWhileLookedAt(CodeTime):
    """Code that has been made once somebody has read a first one of the two numbers."""

    end = None

    def __getattribute__(self, name: str) -> object:
        value = super().__getattribute__(name)
        if name in ("_begun_ns", "_waited_ns") and (end := super().__getattribute__("end")) is not None:
            self.end = None
            end()
        return value


def test_a_look_while_making_ends_misses_nothing():
    """A runner would be over its budget at once."""
    spent = EndingWhileLookedAt(60.0)
    with ExitStack() as made:
        made.enter_context(spent.making())
        time.sleep(0.2)
        spent.end = made.close
        assert spent.waited_ns() >= 0.2e9
