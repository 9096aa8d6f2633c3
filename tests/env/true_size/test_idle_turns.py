# SPDX-License-Identifier: Apache-2.0
"""Idle lanes where a kernel is verified excuse nothing that it leaves out at the true size; honest ones have a time."""

import pytest

from tests.env.true_size.honest_products import HONEST as PRODUCTS
from tests.env.true_size.honest_rows import HONEST as ROWS
from tests.env.true_size.idle_turns import ATTACKS
from verl_kernel.env.judge.judge import Judge
from verl_kernel.env.options import GymOptions
from verl_kernel.env.result import EvalStatus
from verl_kernel.env.task import Task

pytestmark = [pytest.mark.processes, pytest.mark.slow]

HONEST = {**PRODUCTS, **ROWS}
SHORT = ("loads_a_turn_ahead", "groups_of_tiles", "single_products", "persistent", "products_of_nothing_too")
SHORT += ("half_of_the_terms_from_the_end", "half_of_the_terms_by_single_products", "idle_stores_too")
SHORT += ("every_second_turn_by_a_comparison", "wide_loads_of_few_lanes_in_16_bits")
"""Programs that take less than half a minute; the others are variations of theirs."""


def rated(names):
    return [name if name in SHORT else pytest.param(name, marks=pytest.mark.exhaustive) for name in names]


OPTIONS = GymOptions(device="cpu", true_size="auto", compile_for="sm_90", run_timeout_s=120)


@pytest.fixture(scope="module")
def judge():
    with Judge(OPTIONS, seed=5) as judge:
        yield judge


@pytest.mark.parametrize("name", rated(ATTACKS))
def test_idle_lanes_do_not_pay(judge, name):
    task, source = ATTACKS[name]
    result = judge.evaluate(Task(task), source)
    assert result.status is EvalStatus.SIZE_DEPENDENT, (result.error, result.speedup)
    assert result.speedup is None, (result.error, result.speedup)
    assert "the operations grow less" in result.true_size.unknown


@pytest.mark.parametrize("name", rated(HONEST))
def test_an_honest_kernel_is_paid(judge, name):
    task, source = HONEST[name]
    result = judge.evaluate(Task(task), source)
    assert result.status is EvalStatus.OK, (result.error, result.true_size)
    assert result.speedup is not None, (result.error, result.true_size)
