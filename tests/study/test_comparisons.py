# SPDX-License-Identifier: Apache-2.0
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_kernel.study.comparisons import Effect, effect, effects_table
from verl_kernel.study.plan import Comparison

FIGURE = "held_out/correct"
ONE = Comparison("pair", "a against b", ("a", "b"), "correct", 0.1, ("coverage",))


def rows(arm, values):
    ends = [{"arm": arm, "seed": seed, "step": 2, FIGURE: value} for seed, value in values.items()]
    return [{"arm": arm, "seed": 0, "step": 1}, *ends]


def test_arms_are_paired_by_seed_and_seeds_that_one_lacks_are_left_out():
    found = effect([*rows("a", {2: 0.5, 0: 0.4, 1: 0.6}), *rows("b", {0: 0.3, 2: 0.1, 7: 0.9})], ("a", "b"), "correct")
    assert found.differences == pytest.approx((0.1, 0.4))
    assert effect(rows("a", {0: 0.4}), ("a", "b"), "correct") is None


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=8))
def test_an_interval_lies_within_the_differences_and_is_the_same_every_time(values):
    data = [*rows("a", dict(enumerate(values))), *rows("b", dict.fromkeys(range(len(values)), 0.0))]
    found = effect(data, ("a", "b"), "correct")
    slack = 1e-9
    assert min(values) - slack <= found.low <= found.mean + slack
    assert found.mean - slack <= found.high <= max(values) + slack
    assert found == effect(data, ("a", "b"), "correct")


def test_the_interval_is_the_bootstraps():
    # Of two seeds a mean is one of three values, with probabilities 1/4, 1/2, 1/4.
    found = effect([*rows("a", {0: 0.0, 1: 1.0}), *rows("b", {0: 0.0, 1: 0.0})], ("a", "b"), "correct")
    assert (found.low, found.mean, found.high) == (0.0, 0.5, 1.0)


@pytest.mark.parametrize(
    ("low", "high", "expected", "said"),
    [
        (0.05, 0.25, 0.1, "confirmed"),
        (-0.25, -0.05, -0.1, "confirmed"),
        (0.01, 0.05, 0.1, "confirmed, smaller than expected"),
        (-0.05, -0.01, 0.1, "refuted: the other way"),
        (0.01, 0.05, -0.1, "refuted: the other way"),
        (-0.02, 0.05, 0.1, "refuted: less than expected"),
        (-0.02, 0.2, 0.1, "not decided"),
        (-0.2, 0.02, -0.1, "not decided"),
    ],
)
def test_verdicts(low, high, expected, said):
    middle = (low + high) / 2
    assert Effect((middle,) * 3, low, high).verdict(expected) == said
    assert Effect((middle,) * 2, low, high).verdict(expected) == "not decided"
    assert Effect(tuple(-value for value in (middle,) * 3), -high, -low).verdict(-expected) == said


def test_the_table_names_every_comparison_run_or_not():
    data = [*rows("a", {0: 0.5, 1: 0.6, 2: 0.7}), *rows("b", {0: 0.3, 1: 0.3, 2: 0.3})]
    other = Comparison("other", "a against c", ("a", "c"), "decoys", -0.2)
    lines = effects_table(data, [ONE, other]).splitlines()
    assert lines[0].startswith("2 comparisons")
    assert lines[4] == "| a against b | correct | +0.10 | +0.300 | +0.200 to +0.400 | 3 | confirmed |"
    assert lines[5].startswith("|  | coverage |  | - |") and "not run" not in lines[5]
    assert lines[6] == "| a against c | decoys | -0.20 | - | - | 0 | not run |"
    assert math.isclose(effect(data, ("a", "b"), "correct").mean, 0.3)
