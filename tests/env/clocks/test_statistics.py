# SPDX-License-Identifier: Apache-2.0
"""The intervals of medians and speedups, against enumeration and simulation; and noise that is put into times."""

import json
import random
from dataclasses import replace
from itertools import product
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.env.programs import HONEST, REFERENCE
from tests.tiers import thinned
from verl_kernel.env import GymOptions, Task
from verl_kernel.env.clocks import statistics
from verl_kernel.env.clocks.simulated import CALLS, with_noise
from verl_kernel.env.clocks.statistics import compared, is_parity, is_settled, median_interval, median_rank, timing
from verl_kernel.env.judge.judge import Judge
from verl_kernel.env.request import EvalRequest
from verl_kernel.env.result import Comparison, EvalResult, EvalStatus

TASK, OPTIONS = Task(REFERENCE, task_id="fused"), GymOptions(device="cpu", correctness_trials=2)
RESULT = EvalResult(
    task_id="t", status=EvalStatus.OK, speedup=2.0, speedup_low=2.0, kernel_ms=timing([1.0]), reference_ms=timing([2.0])
)
TIMES = {"kernel_ms", "reference_ms", "speedup", "speedup_low", "env"}
LAWS = {
    "exponential": lambda rng: rng.expovariate(0.6931471805599453),
    "lognormal": lambda rng: rng.lognormvariate(0.0, 0.8),
    "two_modes": lambda rng: rng.gauss(0.6, 0.01) if rng.random() < 0.5 else rng.gauss(1.4, 0.01),
    "cauchy": lambda rng: abs(rng.gauss(0, 1) / rng.gauss(0, 1)),
}
"""Each of median 1 (of two modes, the middle between them)."""


def enumerated_rank(count, confidence):
    """Largest k such that order statistics k and count + 1 - k enclose the median, by trying every coin sequence."""
    below = [sum(flips) for flips in product((0, 1), repeat=count)]

    def encloses(rank):
        return sum(rank <= number <= count - rank for number in below) >= confidence * len(below)

    return max(filter(encloses, range(1, count // 2 + 1)), default=0)


@pytest.mark.parametrize("count", thinned(range(1, 13), 3))
def test_rank_is_that_of_the_coin_sequences(count):
    for confidence in (0.5, 0.9, 0.95, 0.99):
        assert median_rank(count, confidence) == enumerated_rank(count, confidence), confidence


def test_known_ranks():
    # Conover, Practical Nonparametric Statistics: 95 % intervals for a median
    assert [median_rank(n) for n in (5, 6, 9, 10, 20, 100)] == [0, 1, 2, 2, 6, 40]


@given(st.lists(st.floats(0.001, 1e6), min_size=1, max_size=120), st.randoms(use_true_random=False))
def test_interval_ignores_order_and_holds_the_median(times, shuffler):
    interval = median_interval(times)
    shuffled = list(times)
    shuffler.shuffle(shuffled)
    assert interval == median_interval(shuffled)
    if interval is None:
        assert len(times) < 6
    else:
        assert interval[0] <= timing(times).median <= interval[1]


def test_interval_covers_the_true_median_as_often_as_it_says():
    generator = random.Random(0)
    intervals = [median_interval([generator.expovariate(1.0) for _ in range(25)]) for _ in range(2000)]
    hits = sum(low <= 0.693147 <= high for low, high in intervals)
    assert 0.945 <= hits / 2000 <= 0.985  # 0.957 is exact for 25


@pytest.mark.parametrize(("times", "settled"), [
    ([1.0] * 10, True), ([1.0] * 5, False), ([0.9, 1.1] * 20, False), ([1.0] * 99 + [50.0], True),
])  # fmt: skip
def test_settled(times, settled):
    """Five times are too few to say, and an outlier moves no median."""
    assert is_settled(times) is settled


@given(st.lists(st.floats(0.0, 1e6), min_size=1, max_size=50))
def test_timing_is_ordered(times):
    summary = timing(times)
    assert summary.n == len(times)
    assert min(times) <= summary.p20 <= summary.median <= summary.p80 <= max(times)


@settings(max_examples=12)
@given(
    st.sampled_from(sorted(LAWS)), st.sampled_from(sorted(LAWS)), st.integers(10, 60), st.integers(10, 60),
    st.sampled_from([0.8, 0.9, 0.95]), st.integers(0, 2**32),
)  # fmt: skip
def test_the_true_ratio_is_covered_as_often_as_stated(kernel, reference, ours, theirs, confidence, seed):
    rng, runs = random.Random(seed), 400

    def low():
        times = [LAWS[kernel](rng) for _ in range(ours)], [3.0 * LAWS[reference](rng) for _ in range(theirs)]
        return statistics.lowest_ratio(*times, confidence)

    deviation = (confidence * (1 - confidence) / runs) ** 0.5
    assert sum(low() <= 3.0 for _ in range(runs)) / runs >= confidence - 4 * deviation


@given(st.lists(st.floats(0.01, 100), min_size=6, max_size=60), st.lists(st.floats(0.01, 100), min_size=6, max_size=60))
def test_the_lower_end_is_at_most_the_point(kernel, reference):
    comparison = compared(kernel, reference)
    assert comparison.speedup == pytest.approx(comparison.reference_ms.median / comparison.kernel_ms.median)
    if is_parity(comparison.speedup):
        assert comparison.speedup_low == 1.0
    else:
        assert 0 < comparison.speedup_low <= comparison.speedup * (1 + 1e-9)


@pytest.mark.parametrize(("kernel", "reference", "low"), [
    ([1.0] * 20, [2.0] * 20, 2.0), ([0.8, 0.9, 1.1, 1.2] * 5, [1.6, 1.8, 2.2, 2.4] * 5, pytest.approx(1.8 / 1.1)),
    ([1.0] * 5, [2.0] * 20, None),
])  # fmt: skip
def test_noise_and_few_calls_narrow_what_is_sure(kernel, reference, low):
    assert compared(kernel, reference).speedup == pytest.approx(2.0)
    assert compared(kernel, reference).speedup_low == low


def test_more_calls_say_more():
    rng = random.Random(5)
    kernel, reference = ([scale * rng.lognormvariate(0, 0.2) for _ in range(400)] for scale in (1.0, 2.0))
    few, many = compared(kernel[:12], reference[:12]), compared(kernel, reference)
    assert few.speedup_low < many.speedup_low < 2.1


@pytest.mark.parametrize(("speedup", "parity"), [(1.0, True), (1.02, True), (0.98, True), (1.03, False), (0.97, False)])
def test_the_band_of_a_program_beside_itself(speedup, parity):
    assert statistics.AA_BAND == 0.02
    assert is_parity(speedup) is parity
    assert (compared([1.0] * 10, [speedup] * 10).speedup_low == 1.0) is parity


@pytest.mark.parametrize(("source", "sure"), [("simulated", 2.0), ("cuda_event", None), (None, None)])
def test_a_record_without_a_lower_end_still_loads(source, sure):
    record = {"task_id": "t", "status": "ok", "correctness": True, "speedup": 2.0, "timing_source": source}
    result = EvalResult.model_validate_json(json.dumps(record))
    assert result.speedup_low is None
    assert result.times == {}
    assert result.sure_speedup == sure


def test_a_comparison_survives_json():
    comparison = compared([1.0] * 10, [2.0] * 10)
    assert Comparison.model_validate_json(comparison.model_dump_json()) == comparison


def test_the_median_speedup_with_noise_is_the_true_one():
    found = [with_noise(RESULT, 0.4, random.Random(seed)) for seed in range(400)]
    assert median(one.speedup for one in found) == pytest.approx(2.0, rel=0.05)
    assert sum(one.speedup_low <= 2.0 for one in found) > 0.95 * len(found)
    assert all(one.speedup_low <= one.speedup and one.kernel_ms.n == CALLS for one in found)


def test_nothing_else_changes_and_what_has_no_time_stays():
    noisy = with_noise(RESULT, 0.4, random.Random(0))
    assert noisy.model_dump(exclude=TIMES) == RESULT.model_dump(exclude=TIMES)
    assert noisy.env == {"timing_noise": 0.4}
    assert EvalResult.model_validate_json(noisy.model_dump_json()) == noisy
    unpriced = RESULT.model_copy(update={"speedup": None, "speedup_low": None})
    assert with_noise(unpriced, 0.4, random.Random(0)) is unpriced


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
