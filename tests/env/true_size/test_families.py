# SPDX-License-Identifier: Apache-2.0
"""Families that do less at the true size are not paid, and their neighbours are, by the options of both commands."""

import pytest

from tests.env.true_size.family_programs import ATTACKS, HONEST
from verl_kernel.env.judge.judge import Judge
from verl_kernel.env.options import GymOptions
from verl_kernel.env.task import Task

pytestmark = [pytest.mark.processes, pytest.mark.slow]
OPTIONS = {
    "eval": GymOptions(device="cpu", static_check="off", memory_checks="refuse", true_size="auto", run_timeout_s=120),
    "training": GymOptions(device="cpu", static_check="off", correctness_trials=2, true_size="auto", run_timeout_s=120),
}


@pytest.fixture(scope="module", params=OPTIONS)
def judge(request):
    with Judge(OPTIONS[request.param], seed=11) as judge:
        yield judge


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_has_no_speedup(judge, name):
    task, source = ATTACKS[name]
    result = judge.evaluate(Task(task), source)
    assert result.status.value in ("ok", "size_dependent", "incorrect"), result.error
    assert result.speedup is None, result.error


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_neighbour_has_one(judge, name):
    task, source = HONEST[name]
    result = judge.evaluate(Task(task), source)
    assert result.rewarded, (result.status, result.error, result.true_size)
    assert result.speedup, (result.status, result.error, result.true_size)
