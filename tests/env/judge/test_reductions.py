# SPDX-License-Identifier: Apache-2.0
"""A reduction that starts at a wrong value is refused, however long its rows, and one that starts right is not."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.env.judge.reductions import REDUCTIONS
from verl_kernel.env.judge.judge import Judge
from verl_kernel.env.options import GymOptions
from verl_kernel.env.result import EvalStatus

pytestmark = pytest.mark.processes
LENGTHS = st.one_of(st.integers(3, 300), st.integers(300, 100_000))


@pytest.fixture(scope="module")
def judge():
    with Judge(GymOptions(device="cpu", run_timeout_s=60), seed=7) as judge:
        yield judge


@pytest.mark.parametrize("name", REDUCTIONS)
@settings(max_examples=2, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(length=LENGTHS, data=st.data())
def test_a_wrong_start_is_refused_and_the_right_one_is_not(judge, name, length, data):
    reduction, block = REDUCTIONS[name], data.draw(st.sampled_from([1024, 4096]))
    task = reduction.task(length)
    wrong = judge.evaluate(task, reduction.program(data.draw(st.sampled_from(reduction.wrong)), block))
    assert wrong.status is EvalStatus.INCORRECT, (wrong.status, wrong.trials)
    right = judge.evaluate(task, reduction.program(reduction.right, block))
    assert right.rewarded, (right.status, right.error, right.task_flags)
