# SPDX-License-Identifier: Apache-2.0
"""Which candidates are kept, on planted ones, where ACES is wrong, and runs spread over kinds of tests."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.aces.test_weights import COLLUDERS
from verl_kernel.aces import scores, select, weights
from verl_kernel.aces.allocation import allocate, expected_rejections
from verl_kernel.errors import DataError


def planted(rng, n, m, misleading=0.0, share=0.35):
    """A table, which candidates are right, and P(pass | right) - P(pass | wrong) of each test."""
    right = np.arange(n) < max(1, round(share * n))
    low, high = rng.uniform(0.1, 0.6, m), rng.uniform(0.6, 0.95, m)
    turned = rng.random(m) < misleading
    alpha, beta = np.where(turned, low, high), np.where(turned, high, low)
    return (rng.random((n, m)) < np.where(right[:, None], alpha, beta)).astype(int), right, alpha - beta


def ranks(values):
    return np.argsort(np.argsort(values))


def test_weights_rank_tests_as_the_planted_quality_does():
    table, _, quality = planted(np.random.default_rng(0), 100, 60, misleading=0.2)
    for method in "co":
        found = weights(table, method).values
        kept = quality > 0
        assert (found[~kept] < 1 / 60).all()
        if method == "c":
            assert np.corrcoef(ranks(found), ranks(np.maximum(quality, 0)))[0, 1] > 0.8


@pytest.mark.parametrize(("bad", "distinct"), [(9, False), (11, True)])
def test_it_is_no_oracle_of_correctness(bad, distinct):
    """More bad tests than 8 good ones, all of one mind: the colluders win with certainty."""
    table = np.array([[1] * 8 + [0] * bad] * 12 + [[0] * 8 + [1] * bad] * 12)
    if distinct:
        for test in range(8 + bad):
            table[test % 8 if test < 8 else 4 + test, test] = 0
    right = set(range(12))
    for method in "co":
        assert not right & set(select(table, k=12, method=method))
        assert weights(table, method).degenerate is not distinct  # identical tests count once: one against one
    verdicts = [row in right for row in range(24)]
    assert set(select(table, k=24, passed=verdicts)) == right  # the reference's word goes before any score


def test_equal_scores_are_ordered_by_speed():
    table = np.array([[1, 1], [1, 1], [1, 1], [0, 1], [0, 0]])
    assert select(table, [1.0, None, 3.0, 9.0, 9.0], k=4) == [2, 0, 1, 3]
    assert select(table, k=2) == [0, 1]
    assert select(table, [1.0, 2.0, 3.0, 9.0, 9.0], passed=[False, False, False, True, True]) == [3]
    assert select(table, passed=[False] * 5) == []


def test_scores_are_of_the_tests_that_ran():
    table, ran = np.array([[1, 0, 1], [1, 0, 0], [0, 0, 0]]), np.array([[1, 1, 1], [1, 0, 0], [0, 0, 0]], bool)
    assert scores(table, [0.5, 0.25, 0.25], ran) == pytest.approx([0.75, 1.0, 0.0])
    assert scores(COLLUDERS, np.arange(16)) == pytest.approx(COLLUDERS @ np.arange(16))


def test_values_of_another_length_are_refused():
    table = np.array([[1, 0], [0, 1]])
    with pytest.raises(DataError, match="one for each of 2 tests"):
        scores(table, [1.0])
    with pytest.raises(DataError, match="one value for each of 2 candidates"):
        select(table, [1.0])


KINDS = ["a", "a", "b", "b", "c"]


@given(st.lists(st.floats(0, 10), min_size=5, max_size=5), st.integers(3, 40))
def test_every_kind_has_one_and_the_rest_goes_by_weight(weights, total):
    counts = allocate(weights, KINDS, total)
    assert sum(counts.values()) == total
    assert min(counts.values()) >= 1
    mass = np.array([weights[0] + weights[1], weights[2] + weights[3], weights[4]])
    wanted = (total - 3) * (mass / mass.sum() if mass.sum() > 0 else np.full(3, 1 / 3))
    assert (np.abs(np.array(list(counts.values())) - 1 - wanted) < 1 + 1e-6).all()


def test_a_kind_without_weight_gets_one_trial():
    assert allocate([0.5, 0, 0.5, 0, 0], KINDS, 7) == {"a": 3, "b": 3, "c": 1}
    with pytest.raises(DataError, match="give at least 3"):
        allocate([1] * 5, KINDS, 2)


@given(st.integers(0, 2**32 - 1), st.tuples(*[st.integers(0, 2)] * 3))
def test_expected_rejections_are_those_of_all_draws(seed, numbers):
    matrix = np.random.default_rng(seed).integers(0, 2, (4, 5))
    counts = dict(zip("abc", numbers, strict=True))
    places = [np.flatnonzero(np.array(KINDS) == kind) for kind, count in counts.items() for _ in range(count)]
    draws = [matrix[:, list(drawn)].min(1, initial=1) for drawn in product(*places)]
    assert expected_rejections(matrix, KINDS, counts) == pytest.approx((1 - np.mean(draws, 0)).sum())


def test_a_kind_that_never_ran_rejects_nobody():
    matrix, ran = np.zeros((2, 5), int), np.ones((2, 5), bool)
    ran[0] = False
    assert expected_rejections(matrix, KINDS, {"a": 1, "b": 1, "c": 1}, ran) == 1.0
