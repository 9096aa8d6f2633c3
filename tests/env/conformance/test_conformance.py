# SPDX-License-Identifier: Apache-2.0
"""The conformance suite against both pools, and against evaluators that must not pass it."""

import pytest

from tests.env.gyms import ray_gym
from tests.tiers import thinned
from verl_kernel.env import check_evaluator
from verl_kernel.env.conformance.suite import CASES, OPTIONS, SEED, check_case
from verl_kernel.env.pool.local import LocalPool
from verl_kernel.env.pool.stats import PoolCounters
from verl_kernel.env.result import EvalResult, EvalStatus


@pytest.fixture(scope="module")
def local():
    with LocalPool(OPTIONS, SEED) as pool:
        yield pool


@pytest.fixture(scope="module")
def gym():
    pytest.importorskip("ray")
    with ray_gym(OPTIONS, "conformance", SEED) as gym:
        yield gym


@pytest.mark.processes
@pytest.mark.parametrize("name", thinned(CASES, 13))
def test_local_pool(local, name):
    result = check_case(local, name)
    assert result.passed, result.detail


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.parametrize("name", thinned(CASES, 20))
def test_ray_pool(gym, name):
    result = check_case(gym, name)
    assert result.passed, result.detail


class Generous:
    status = EvalStatus.OK

    def verdict(self, task, kernel):
        return EvalResult(task_id=task.task_id, kernel=kernel, status=self.status, correctness=True, attempts=1)

    async def evaluate(self, task, source, *, kernel="", validate=False, step=None):
        return self.verdict(task, kernel)

    def evaluate_many(self, jobs):
        return [self.verdict(task, kernel) for task, _, kernel in jobs]

    def stats(self):
        return PoolCounters().stats((), 0, 0)

    def close(self):
        self.closed = True


class Hopeless(Generous):
    status = EvalStatus.INFRA_ERROR


TRIVIAL = {"result_survives_json", "pool_is_idle_in_the_end", "seed_determines_the_result"}
SERVES = {"output_is_dropped", "burst_is_served"}


@pytest.mark.parametrize("kind", [Generous, Hopeless])
def test_evaluators_that_do_not_look_fail(kind):
    evaluator = kind()
    results = check_evaluator(lambda options, seed: evaluator)
    assert [result.name for result in results] == list(CASES)
    assert evaluator.closed
    passed = {result.name for result in results if result.passed}
    allowed = TRIVIAL | (SERVES if kind is Generous else set())
    assert passed <= allowed, passed - allowed
    assert all(result.detail for result in results if not result.passed)
