# SPDX-License-Identifier: Apache-2.0
"""Two runs against each other: paired intervals, and who changed sides."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.figures import naive
from tests.figures.test_scoring import FEW, assert_estimate, last
from verl_kernel.errors import DataError
from verl_kernel.figures.attempts import Asked, AskedTask, Attempt
from verl_kernel.figures.comparison import Side, compare


@st.composite
def pairs(draw):
    attempts, asked = draw(naive.runs())
    others = [draw(naive.answers(task, sample, 1)) for task in asked.tasks for sample in range(draw(st.integers(0, 3)))]
    return Side(attempts, asked), Side(others, Asked(tuple(reversed(asked.tasks)), 3, 1))


def minus(one, other):
    return None if one is None or other is None else one - other


@settings(max_examples=20, deadline=None)
@given(pairs())
def test_differences_and_their_paired_intervals(pair):
    a, b = pair
    tasks = [one.task for one in a.asked.tasks]
    for one in compare(a, b, FEW).differences:
        if one.view != "last turn":
            continue

        def value(some, one=one):
            values = (naive.figure(one.figure, last(side.attempts, side.asked, some, 3)) for side in (b, a))
            return minus(*values)

        assert_estimate(one.difference, value, tasks)
        low, high = one.difference.low, one.difference.high
        assert one.is_clear is (low is not None and (low > 1e-9 or high < -1e-9))


@settings(max_examples=20, deadline=None)
@given(pairs())
def test_who_changed_sides(pair):
    a, b = pair
    found = {(one.task, one.criterion): one for one in compare(a, b, FEW).changes if one.view == "last turn"}
    for task in (one.task for one in a.asked.tasks):
        for criterion in ("correct", "fast@1.2", "fast@1.5 (sure)"):
            sides = [
                [naive.figure(criterion, [one]) for one in last(side.attempts, side.asked, [task], 3) if not one.lost]
                for side in (a, b)
            ]
            changed = all(sides) and any(sides[0]) != any(sides[1])
            assert ((task, criterion) in found) is bool(changed)
            if changed:
                one = found[task, criterion]
                counts = (one.a_passed, one.a_samples, one.b_passed, one.b_samples)
                assert counts == (sum(sides[0]), len(sides[0]), sum(sides[1]), len(sides[1]))


def test_a_run_against_itself_differs_in_nothing():
    attempts = [Attempt(f"t{n}", 0, 1, "ok", correct=n % 2 == 0, speedup=1.0 + n) for n in range(6)]
    side = Side(attempts, Asked.of(attempts))
    found = compare(side, side)
    assert not found.changes
    assert not any(one.is_clear for one in found.differences)
    assert {one.difference.value for one in found.differences} <= {0.0, None}


def test_what_makes_tasks_hard_for_both_cancels():
    attempts = [Attempt(f"t{n}", 0, 1, "ok", correct=True, speedup=float(1 + n)) for n in range(8)]
    faster = [replace(one, speedup=one.speedup * 1.1) for one in attempts]
    found = compare(Side(attempts, Asked.of(attempts)), Side(faster, Asked.of(faster))).differences
    (one,) = [one for one in found if (one.figure, one.view) == ("speedup (correct)", "last turn")]
    assert one.is_clear
    assert one.difference.low > 0
    assert one.a.high > one.b.low  # apart, the two intervals overlap


def test_runs_of_different_tasks_are_refused():
    sides = [Side([], Asked((AskedTask(name),), 1)) for name in "ab"]
    with pytest.raises(DataError, match="different tasks"):
        compare(*sides)
