# SPDX-License-Identifier: Apache-2.0
"""Programs that read like right ones and that no GPU runs."""

import re
from collections.abc import Iterator

import pytest

from tests.env.compilation.refused_programs import PROGRAMS, TASKS
from verl_kernel.env.judge.judge import Judge
from verl_kernel.env.options import GymOptions
from verl_kernel.env.result import EvalStatus
from verl_kernel.env.task import Task
from verl_kernel.rollout.feedback import format_feedback

OPTIONS = GymOptions(device="cpu", correctness_trials=2, compile_for="sm_90")
REFERENCES = {name: Task(source, task_id=name) for name, source in TASKS.items()}

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(OPTIONS, seed=3) as judge:
        yield judge


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_what_a_gpu_refuses_is_a_compile_error_with_a_line(program, judge):
    result = judge.evaluate(REFERENCES[program.task], program.source)
    error = result.error
    assert result.status is EvalStatus.COMPILE_ERROR, error
    assert f"line {program.line}, in " in error.message, error
    assert re.search(program.words, error.message), error
    assert not result.rewarded
    assert result.compiled is False
    assert result.speedup is None
    assert result.compiled_kernels is None
    told = format_feedback(result)
    assert f"line {program.line}, in " in told, told
    assert re.search(program.words, told), told


def test_the_set_is_large_and_each_program_is_another_one():
    assert len(PROGRAMS) >= 25
    assert len({program.source for program in PROGRAMS}) == len(PROGRAMS)
