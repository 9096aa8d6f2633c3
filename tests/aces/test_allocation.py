# SPDX-License-Identifier: Apache-2.0
"""Runs spread over kinds, and the rejections that they are expected to keep."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_kernel.aces.allocation import allocate, expected_rejections
from verl_kernel.errors import DataError

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
