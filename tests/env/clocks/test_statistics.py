# SPDX-License-Identifier: Apache-2.0
"""Quantiles and the confidence interval of a median, against enumeration and simulation."""

import random
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_kernel.env.clocks.statistics import is_settled, median_interval, median_rank, timing


def enumerated_rank(count, confidence):
    """Largest k such that order statistics k and count + 1 - k enclose the median, by trying every coin sequence."""
    below = [sum(flips) for flips in product((0, 1), repeat=count)]
    best = 0
    for rank in range(1, count // 2 + 1):
        inside = sum(rank <= number <= count - rank for number in below)
        if inside >= confidence * len(below):
            best = rank
    return best


@pytest.mark.parametrize("count", range(1, 13))
@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.99])
def test_rank_is_that_of_the_coin_sequences(count, confidence):
    assert median_rank(count, confidence) == enumerated_rank(count, confidence)


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
    hits = 0
    for _ in range(2000):
        low, high = median_interval([generator.expovariate(1.0) for _ in range(25)])
        hits += low <= 0.693147 <= high
    assert 0.945 <= hits / 2000 <= 0.985  # 0.957 is exact for 25


def test_settled():
    assert is_settled([1.0] * 10)
    assert not is_settled([1.0] * 5)  # too few to say
    assert not is_settled([0.9, 1.1] * 20)
    assert is_settled([1.0] * 99 + [50.0])  # an outlier moves no median


@given(st.lists(st.floats(0.0, 1e6), min_size=1, max_size=50))
def test_timing_is_ordered(times):
    summary = timing(times)
    assert summary.n == len(times)
    assert min(times) <= summary.p20 <= summary.median <= summary.p80 <= max(times)
