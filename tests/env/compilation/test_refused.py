# SPDX-License-Identifier: Apache-2.0
"""Programs that the interpreter runs with right values and that no GPU runs: `ok` until they are compiled."""

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.env.compilation.refused_programs import PROGRAMS, TASKS
from verl_kernel.env.judge.judge import Judge
from verl_kernel.env.options import GymOptions
from verl_kernel.env.result import EvalStatus
from verl_kernel.env.task import Task
from verl_kernel.rollout.feedback import format_feedback

OPTIONS = GymOptions(device="cpu", correctness_trials=2)
REFERENCES = {name: Task(source, task_id=name) for name, source in TASKS.items()}

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def judges() -> Iterator[tuple[Judge, Judge]]:
    """One without the stage and one with it, with one zygote of runners between them."""
    with Judge(replace(OPTIONS, compile_for="sm_90"), seed=3) as compiling:
        interpreting = Judge(OPTIONS, seed=3)
        interpreting._zygote = compiling._zygote
        yield interpreting, compiling


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_what_a_gpu_would_not_run_is_a_compile_error_at_its_line(program, judges):
    interpreting, compiling = judges
    task = REFERENCES[program.task]
    before, after = interpreting.evaluate(task, program.source), compiling.evaluate(task, program.source)
    assert before.status is EvalStatus.OK and before.compiled_for is None, before.error
    error = after.error
    assert after.status is EvalStatus.COMPILE_ERROR and error.stage == "compile", error
    assert f"line {program.line}, in " in error.message and re.search(program.words, error.message), error
    assert not after.rewarded and after.compiled is False and after.compiled_for == "sm_90"
    assert after.speedup is None and after.compiled_kernels is None
    told = format_feedback(after)
    assert f"line {program.line}, in " in told and re.search(program.words, told), told


def test_the_set_is_large_and_each_program_is_another_one():
    assert len(PROGRAMS) >= 25 and len({program.source for program in PROGRAMS}) == len(PROGRAMS)
