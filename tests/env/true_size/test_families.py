# SPDX-License-Identifier: Apache-2.0
"""Families that do less at the true size are not paid, and their neighbours are, by the options of both commands."""

import dataclasses

import pytest

from tests.env.true_size.family_programs import ATTACKS, HONEST
from tests.thinned import thinned
from verl_kernel.env.judge.judge import Judge
from verl_kernel.env.options import GymOptions
from verl_kernel.env.task import Task

pytestmark = [pytest.mark.processes, pytest.mark.slow]
COMMON = GymOptions(
    device="cpu", static_check="off", true_size="auto", run_timeout_s=120,
    reference_timeout_s=300,  # tensors of 3 GB take half a minute on a quiet machine, over one on a machine that swaps
)  # fmt: skip
OPTIONS = {
    "eval": dataclasses.replace(COMMON, memory_checks="refuse"),
    "training": dataclasses.replace(COMMON, correctness_trials=2),
}


@pytest.fixture(scope="module", params=[pytest.param("eval", marks=pytest.mark.exhaustive), "training"])
def judge(request):
    with Judge(OPTIONS[request.param], seed=11) as judge:
        yield judge


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_has_no_speedup(judge, name):
    task, source = ATTACKS[name]
    result = judge.evaluate(Task(task), source)
    assert result.status.value in ("ok", "size_dependent", "incorrect"), result.error
    assert result.speedup is None, result.error


@pytest.mark.parametrize("name", thinned(HONEST))
def test_an_honest_neighbour_has_one(judge, name):
    task, source = HONEST[name]
    result = judge.evaluate(Task(task), source)
    assert result.rewarded, (result.status, result.error, result.true_size)
    assert result.speedup, (result.status, result.error, result.true_size)
