# SPDX-License-Identifier: Apache-2.0
"""The lower end of a speedup against simulation: it is below the true ratio as often as it says."""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_kernel.env.clocks.statistics import AA_BAND, compared, is_parity, lowest_ratio
from verl_kernel.env.result import Comparison, EvalResult

LAWS = {
    "exponential": lambda rng: rng.expovariate(0.6931471805599453),
    "lognormal": lambda rng: rng.lognormvariate(0.0, 0.8),
    "two_modes": lambda rng: rng.gauss(0.6, 0.01) if rng.random() < 0.5 else rng.gauss(1.4, 0.01),
    "cauchy": lambda rng: abs(rng.gauss(0, 1) / rng.gauss(0, 1)),
}
"""Each of median 1 (of two modes, the middle between them)."""


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from(sorted(LAWS)), st.sampled_from(sorted(LAWS)), st.integers(10, 60), st.integers(10, 60),
    st.sampled_from([0.8, 0.9, 0.95]), st.integers(0, 2**32),
)  # fmt: skip
def test_the_true_ratio_is_covered_as_often_as_stated(kernel, reference, ours, theirs, confidence, seed):
    rng, hits, runs = random.Random(seed), 0, 400
    for _ in range(runs):
        low = lowest_ratio(
            [LAWS[kernel](rng) for _ in range(ours)], [3.0 * LAWS[reference](rng) for _ in range(theirs)], confidence
        )
        hits += low <= 3.0
    deviation = (confidence * (1 - confidence) / runs) ** 0.5
    assert hits / runs >= confidence - 4 * deviation


@given(st.lists(st.floats(0.01, 100), min_size=6, max_size=60), st.lists(st.floats(0.01, 100), min_size=6, max_size=60))
def test_the_lower_end_is_at_most_the_point(kernel, reference):
    comparison = compared(kernel, reference)
    assert comparison.speedup == pytest.approx(comparison.reference_ms.median / comparison.kernel_ms.median)
    if is_parity(comparison.speedup):
        assert comparison.speedup_low == 1.0
    else:
        assert 0 < comparison.speedup_low <= comparison.speedup * (1 + 1e-9)


def test_noise_narrows_what_is_sure():
    quiet = compared([1.0] * 20, [2.0] * 20)
    noisy = compared([0.8, 0.9, 1.1, 1.2] * 5, [1.6, 1.8, 2.2, 2.4] * 5)
    assert quiet.speedup == quiet.speedup_low == 2.0
    assert noisy.speedup == pytest.approx(2.0)
    assert noisy.speedup_low == pytest.approx(1.8 / 1.1)


def test_more_calls_say_more():
    rng = random.Random(5)
    kernel, reference = ([scale * rng.lognormvariate(0, 0.2) for _ in range(400)] for scale in (1.0, 2.0))
    few, many = compared(kernel[:12], reference[:12]), compared(kernel, reference)
    assert few.speedup_low < many.speedup_low < 2.1


@pytest.mark.parametrize(("speedup", "parity"), [(1.0, True), (1.02, True), (0.98, True), (1.03, False), (0.97, False)])
def test_the_band_of_a_program_beside_itself(speedup, parity):
    assert AA_BAND == 0.02
    assert is_parity(speedup) is parity
    assert (compared([1.0] * 10, [speedup] * 10).speedup_low == 1.0) is parity


def test_too_few_calls_support_nothing():
    comparison = compared([1.0] * 5, [2.0] * 20)
    assert comparison.speedup == 2.0
    assert comparison.speedup_low is None


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
