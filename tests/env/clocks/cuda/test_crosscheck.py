# SPDX-License-Identifier: Apache-2.0
"""The judge's clock against the runner's: honest calls keep their time, others are charged or flagged."""

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_kernel.env.clocks.cuda.rounds import JITTER_MS, NullCall, TimedCall, hidden_ms, mismatch

NULL = NullCall(typical=0.3, high=0.4)
times = st.floats(0.0, 1e4)


def honest(inner, count=11):
    return [TimedCall(inner, inner + 0.3) for _ in range(count)]


@given(times, st.sampled_from([[], [TimedCall(1.0, 80.0)] * 4]))
def test_honest_events_stand(inner, hiccups):
    calls = [*honest(inner), *hiccups]
    assert mismatch(calls, NULL) is None
    assert hidden_ms(calls, NULL) == 0.0


@given(st.floats(4.0, 1e4), st.floats(0.0, 1.0))
def test_work_outside_the_events_is_charged_and_flagged(real, share):
    claims = [TimedCall(share * real, real + 0.3) for _ in range(11)]
    hidden = (1 - share) * real - 0.1
    assert hidden_ms(claims, NULL) == pytest.approx(max(0.0, hidden), abs=1e-9)
    assert (mismatch(claims, NULL) is not None) == (hidden > JITTER_MS and share * real < hidden)


@given(times, st.lists(st.tuples(times, st.booleans()), min_size=11, max_size=11))
def test_no_claim_gains_more_than_the_spread_of_null_calls(real, claims):
    calls = [TimedCall(min(claim, real) if lies else real, real + NULL.typical) for claim, lies in claims]
    charged = statistics.median(call.inner for call in calls) + hidden_ms(calls, NULL)
    assert charged >= real - (NULL.high - NULL.typical) - 1e-6


def test_events_longer_than_the_call_are_flagged():
    assert "claim" in mismatch([TimedCall(5.0, 3.0)] * 11, NULL)


def test_a_runner_that_slows_its_null_calls_meets_the_ceiling():
    assert NullCall.of([50.0] * 7, ceiling=1.5) == NullCall(1.5, 1.5)
    assert NullCall.of([0.2, 0.3, 0.25], ceiling=1.5) == NullCall(0.25, 0.3)


def test_null_calls_are_as_high_as_their_median_may_be():
    rare = [0.2] * 30 + [9.0] * 3  # hiccups say nothing of the others
    assert NullCall.of(rare, ceiling=10.0) == NullCall(0.2, 0.2)
    assert NullCall.of([0.2, 0.3] * 10, ceiling=10.0).high == 0.3
    assert NullCall(0.2, 0.3).and_also(0.5) == NullCall(0.7, 0.8)


@pytest.mark.parametrize("inner", [float("nan"), float("inf"), -1.0, "1", True, None])
def test_what_is_no_time_is_refused(inner):
    with pytest.raises(ValueError):
        TimedCall(inner, 1.0)
