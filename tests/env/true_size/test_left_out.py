# SPDX-License-Identifier: Apache-2.0
"""Work that is left out at the true size is not paid, however a program spreads it or hides it where it is verified."""

import pytest

from tests.env.true_size.left_out import ATTACKS, HONEST, PRODUCT
from tests.thinned import thinned
from verl_kernel.env.judge.judge import Judge
from verl_kernel.env.options import GymOptions
from verl_kernel.env.result import EvalStatus
from verl_kernel.env.task import Task

pytestmark = [pytest.mark.processes, pytest.mark.slow]


@pytest.fixture(scope="module")
def judge():
    with Judge(GymOptions(device="cpu", true_size="auto", compile_for="sm_90"), seed=5) as judge:
        yield judge


@pytest.mark.parametrize("name", thinned(ATTACKS, 3))
def test_work_that_is_left_out_is_not_paid(judge, name):
    result = judge.evaluate(Task(PRODUCT), ATTACKS[name])
    assert result.status is EvalStatus.SIZE_DEPENDENT, result.error
    assert result.speedup is None, result.error
    assert "the operations grow less" in result.true_size.unknown


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_neighbour_is_paid(judge, name):
    result = judge.evaluate(Task(PRODUCT), HONEST[name])
    assert result.status is EvalStatus.OK, (result.error, result.true_size)
    assert result.speedup is not None, (result.error, result.true_size)
