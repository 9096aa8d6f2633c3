# SPDX-License-Identifier: Apache-2.0
"""Where the special trials of an evaluation lie."""

import hashlib
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_kernel.env.judge.trials.plan import TrialPlan
from verl_kernel.env.reference.kinds import ENDS, KINDS

SECRETS = [hashlib.sha256(bytes([number])).digest() for number in range(200)]


def places(plan, kind):
    return [number for number, other in enumerate(plan.kinds) if other == kind]


@given(st.binary(min_size=32, max_size=32), st.integers(1, 12))
def test_the_ablation_lies_between_varied_and_another_trial(secret, total):
    plan = TrialPlan.draw(secret, total)
    assert plan.total == total
    assert 0 <= plan.inspected < total
    assert plan.switched is None if total == 1 else 1 <= plan.switched < total
    if total <= 2:
        assert plan.kinds == (("drawn",), ("drawn", "large"))[total - 1]
        assert plan.ablated == total - 1
        return
    (varied,), (large,) = places(plan, "varied"), places(plan, "large")
    assert 1 <= varied <= plan.ablated <= total - 2
    assert 1 <= large < total


@given(st.binary(min_size=32, max_size=32), st.tuples(*[st.integers(1, 5)] * len(KINDS)))
def test_a_chosen_plan_has_the_chosen_kinds_and_the_same_places(secret, numbers):
    counts = dict(zip(KINDS, numbers, strict=True))
    plan = TrialPlan.chosen(secret, counts)
    assert Counter(plan.kinds) == counts
    assert plan.kinds[0] == "drawn"
    assert 1 <= places(plan, "varied")[0] <= plan.ablated <= plan.total - 2
    assert 0 <= plan.inspected < plan.total
    assert 1 <= plan.switched < plan.total


@pytest.mark.parametrize("make", [lambda secret: TrialPlan.draw(secret, 5), None], ids=["draw", "chosen"])
def test_no_place_can_be_counted_on(make):
    make = make or (lambda secret: TrialPlan.chosen(secret, dict.fromkeys(KINDS, 1)))
    plans = [make(secret) for secret in SECRETS]
    ablated = Counter(plan.ablated for plan in plans)
    assert set(ablated) == {1, 2, 3}
    assert max(ablated.values()) < 100
    for kind in ("varied", "large", *ENDS):
        at = Counter(number for plan in plans for number in places(plan, kind))
        assert len(at) >= (2 if kind == "varied" else 4)
        assert max(at.values()) < 160
    assert {plan.inspected for plan in plans} == set(range(5))
    assert {plan.switched for plan in plans} == set(range(1, 5))


@given(st.binary(min_size=32, max_size=32), st.integers(4, 12))
def test_a_plan_has_both_ends_where_it_has_room(secret, total):
    kinds = Counter(TrialPlan.draw(secret, total).kinds)
    assert [kinds["varied"], kinds["large"], kinds["negative"] + kinds["positive"]] == [1, 1, min(2, total - 3)]
    assert max(kinds["negative"], kinds["positive"]) == 1


def test_where_one_end_has_room_it_is_not_always_the_same():
    assert {kind for secret in SECRETS for kind in TrialPlan.draw(secret, 4).kinds} == set(KINDS)


def test_the_judges_own_plan_has_not_changed():
    """Digest of the plans of 200 secrets and 12 totals: verdicts with a seed must repeat over versions."""
    lines = []
    for secret in SECRETS:
        for total in range(1, 13):
            plan = TrialPlan.draw(secret, total)
            special = [number for number, kind in enumerate(plan.kinds) if kind == "varied"]
            lines.append(f"{total} {special} {places(plan, 'large')} {plan.ablated} {plan.inspected}")
    assert (
        hashlib.sha256("\n".join(lines).encode()).hexdigest()
        == "863c08ef0c8ce0b24bef0d603392ece30ef44167b37849d9af06a81d39feb5bb"
    )
