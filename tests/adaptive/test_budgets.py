# SPDX-License-Identifier: Apache-2.0
"""Budgets of prompts: their total, their limits, and their proportions between the limits."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_kernel.adaptive import Counts, budgets
from verl_kernel.errors import ConfigError


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.data())
def test_the_total_is_exact_and_harder_prompts_get_no_less(shares: list[float], data: st.DataObject) -> None:
    low = data.draw(st.integers(0, 5))
    high = low + data.draw(st.integers(1, 30))
    total = data.draw(st.integers(low * len(shares), high * len(shares)))
    found = budgets(shares, total, low, high, 0.01)
    assert sum(found) == total
    assert all(low <= budget <= high for budget in found)
    for (p, a), (q, b) in pairwise(zip(shares, found, strict=True)):
        is_tie = abs(p - q) < 1e-9  # their weights may be the same number, and then one of them gets the odd rollout
        assert a >= b - is_tie if p <= q else a <= b + is_tie


def test_nearly_equal_rates_share_like_equal_ones() -> None:
    assert sorted(budgets([0.0, 1e-121, 0.0], 2, 0, 1, 0.01)) == [0, 1, 1]


@given(st.lists(st.floats(0, 1), min_size=2, max_size=8), st.integers(0, 60))
def test_free_prompts_are_in_proportion_to_the_inverse_root(shares: list[float], extra: int) -> None:
    total = 4 * len(shares) + extra
    found = budgets(shares, total, 1, 40, 0.01)
    free = [(share, budget) for share, budget in zip(shares, found, strict=True) if 1 < budget < 40]
    # A budget is off its real number by less than one rollout.
    levels = [((b - 1) * math.sqrt(p + 0.01), (b + 1) * math.sqrt(p + 0.01)) for p, b in free]
    assert not levels or max(lower for lower, _ in levels) < min(upper for _, upper in levels)


def test_by_hand() -> None:
    # 1 / sqrt(.04) : 1 / sqrt(.25) : 1 / sqrt(1) is 5 : 2 : 1.
    assert budgets([0.03, 0.24, 0.99], 32, 1, 64, 0.01) == [20, 8, 4]
    # The first is held at 16, the others share 16 as 2 : 1.
    assert budgets([0.03, 0.24, 0.99], 32, 1, 16, 0.01) == [16, 11, 5]
    assert budgets([0.03, 0.24, 0.99], 32, 8, 64, 0.01) == [16, 8, 8]
    assert budgets([0.5, 0.5, 0.5], 8, 1, 8, 0.01) == [3, 3, 2]
    assert budgets([], 0, 1, 8, 0.01) == []


@pytest.mark.parametrize("total", [5, 25])
def test_limits_that_do_not_allow_the_total_are_refused(total: int) -> None:
    with pytest.raises(ConfigError, match="n_min 2 and n_max 8"):
        budgets([0.5, 0.5, 0.5], total, 2, 8, 0.01)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=8), st.floats(0, 1))
def test_counts_are_the_decayed_sums(steps: list[tuple[int, int]], decay: float) -> None:
    counts = Counts(decay, 1.0, 3.0)
    for hits, misses in steps:
        counts.update({"a": (hits + misses, hits)})
    ages = range(len(steps) - 1, -1, -1)
    hits = sum(step[0] * decay**age for step, age in zip(steps, ages, strict=True))
    total = sum(sum(step) * decay**age for step, age in zip(steps, ages, strict=True))
    assert counts.share("a") == pytest.approx((hits + 1) / (total + 4))
    assert counts.share("never seen") == 0.25
