# SPDX-License-Identifier: Apache-2.0
"""`topr_signed`: signs, the constant that is solved for a share of positives, and who has a say in it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.advantage.batches import assert_close, build, estimate, estimated, rejected_batches
from tests.advantage.oracle import returns_to_go
from verl_kernel.advantage.topr import solve
from verl_kernel.advantage.turns import ZERO_REWARD

SHARES = st.floats(0.001, 0.999)


@pytest.mark.parametrize(("share", "c"), [(0.1, -0.2273), (0.5, 0.7), (0.9, 0.9615)])
def test_the_constant_for_the_default_share(share, c):
    assert solve(share, 0.15) == pytest.approx(c, abs=5e-5)


@given(share=SHARES, wanted=SHARES)
def test_the_constant_is_the_inverse_of_the_share(share, wanted):
    c = solve(share, wanted)
    assert share * (1 - c) / (1 + c * (1 - 2 * share)) == pytest.approx(wanted, abs=1e-9)  # what the loss sees (TOPR)


def test_no_constant_leaves_plus_and_minus_one_by_default():
    batch = build([[1.0], [0.0], [-0.5], [0.25]], [[(0, 2)]] * 4, ["a", "a", "b", "b"])
    assert estimated("topr_signed", batch) == [[1.0], [-1.0], [-1.0], [1.0]]
    assert estimated("topr_signed", batch, topr={"reward": "raw"}) == [[1.0], [0.0], [-0.5], [0.25]]
    assert estimated("topr_signed", batch, topr={"c": 0.5, "threshold": 0.25}) == [[0.5], [-1.5], [-1.5], [-1.5]]
    assert estimated("topr_signed", batch, topr={"c": 0.5, "reward": "raw"}) == [[0.5], [-0.5], [-1.0], [-0.25]]


@given(drawn=rejected_batches(), gamma=st.sampled_from([0.0, 1.0]), share=st.sampled_from([0.15, 0.5]))
def test_every_turn_matches_the_naive_sums(drawn, gamma, share):
    batch, kept = drawn
    rewards = [[reward if abs(reward) > ZERO_REWARD else 0.0 for reward in row] for row in batch.turn_rewards]
    signs = [[1 if value > 0 else -1 for value in returns_to_go(row, gamma)] for row in rewards]
    seen = [sign for row, on in zip(signs, kept, strict=True) for sign, k in zip(row, on, strict=True) if k]
    p = seen.count(1) / len(seen) if seen else 0.5
    c = (p - share) / (p + share - 2 * p * share)
    expected = [[(sign - c) * k for sign, k in zip(*row, strict=True)] for row in zip(signs, kept, strict=True)]
    for switches in ({}, {"baseline": "padded"}, {"count_rejected": False}, {"singleton": "raw"}):
        found = estimated("topr_signed", batch, gamma=gamma, topr={"c": None, "positive_share": share}, **switches)
        assert_close(found, expected)


def test_a_batch_of_one_class_has_no_share_to_teach_by():
    for reward in (1.0, 0.0):
        batch = build([[reward]] * 3, [[(0, 2)]] * 3, ["a"] * 3)
        assert (estimate("topr_signed", batch, topr={"c": None}) == 0).all()


def test_a_turn_that_broke_a_kernel_may_leave_the_share():
    batch = build([[1.0, 0.0], [0.0, 0.0]], [[(0, 2), (3, 5)]] * 2, ["a"] * 2)
    masked = estimated("topr_signed", batch, topr={"c": None, "positive_share": 0.5}, mask_void_turn=True)
    # One positive of three turns: c = (1/3 - 1/2) / (1/3 + 1/2 - 1/3).
    assert masked == [[pytest.approx(4 / 3), 0.0], [pytest.approx(-2 / 3), pytest.approx(-2 / 3)]]
