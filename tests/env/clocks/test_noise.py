# SPDX-License-Identifier: Apache-2.0
"""Injected timing noise has no sign, leaves room below the speedup, and touches nothing but times."""

from dataclasses import replace
from random import Random
from statistics import median

import pytest

from tests.env.programs import HONEST, REFERENCE
from verl_kernel.env import GymOptions, Task
from verl_kernel.env.clocks.simulated import CALLS, with_noise
from verl_kernel.env.clocks.statistics import timing
from verl_kernel.env.judge.judge import Judge
from verl_kernel.env.request import EvalRequest
from verl_kernel.env.result import EvalResult, EvalStatus

TASK = Task(REFERENCE, task_id="fused")
OPTIONS = GymOptions(device="cpu", correctness_trials=2)
RESULT = EvalResult(
    task_id="t", status=EvalStatus.OK, speedup=2.0, speedup_low=2.0, kernel_ms=timing([1.0]), reference_ms=timing([2.0])
)
TIMES = {"kernel_ms", "reference_ms", "speedup", "speedup_low", "env"}


def test_the_median_speedup_is_the_true_one():
    found = [with_noise(RESULT, 0.4, Random(seed)) for seed in range(400)]
    assert median(one.speedup for one in found) == pytest.approx(2.0, rel=0.05)
    assert sum(one.speedup_low <= 2.0 for one in found) > 0.95 * len(found)
    assert all(one.speedup_low <= one.speedup and one.kernel_ms.n == CALLS for one in found)


def test_nothing_else_changes_and_what_has_no_time_stays():
    noisy = with_noise(RESULT, 0.4, Random(0))
    assert noisy.model_dump(exclude=TIMES) == RESULT.model_dump(exclude=TIMES)
    assert noisy.env == {"timing_noise": 0.4}
    assert EvalResult.model_validate_json(noisy.model_dump_json()) == noisy
    unpriced = RESULT.model_copy(update={"speedup": None, "speedup_low": None})
    assert with_noise(unpriced, 0.4, Random(0)) is unpriced


@pytest.mark.processes
def test_training_is_timed_with_noise_and_validation_without(tmp_path, judge_processes):
    options = replace(OPTIONS, timing_noise=0.4, verdict_cache=str(tmp_path))
    with Judge(options, processes=judge_processes) as judge:
        noisy, again = (judge.judge(EvalRequest(TASK, HONEST)) for _ in range(2))
        exact = judge.judge(EvalRequest(TASK, HONEST, validate=True))
    assert options.judges_validation_apart
    assert exact.speedup_low == exact.speedup
    assert len({noisy.speedup, again.speedup, exact.speedup}) == 3
    assert noisy.speedup_low < noisy.speedup
