# SPDX-License-Identifier: Apache-2.0
"""Honest programs pass the gate, however they are written; a sample of them is judged and rewarded."""

import pytest
from hypothesis import HealthCheck, given, settings

from tests.env.honest_programs import STYLES
from tests.exploits.tasks import TASKS
from verl_kernel.env import GymOptions, Judge, Task, check

OPTIONS = GymOptions(device="cpu", correctness_trials=2, run_timeout_s=20, load_timeout_s=20, memory_mb=512)


@pytest.fixture(scope="module")
def judge(judge_processes):
    with Judge(OPTIONS, seed=3, processes=judge_processes) as judge:
        yield judge


@settings(max_examples=100)
@given(STYLES)
def test_no_honest_program_is_refused(style):
    source = style.source()
    compile(source, "honest", "exec", dont_inherit=True)
    assert check(source) == []
    assert style.size == "torch.numel(x)" or check(source, "strict") == []


@pytest.mark.processes
@settings(max_examples=12, derandomize=True, suppress_health_check=list(HealthCheck))
@given(STYLES)
def test_honest_programs_are_rewarded(judge, style):
    result = judge.evaluate(Task(TASKS["add"], task_id="add"), style.source())
    assert result.rewarded, (result.status, result.error, style.source())
