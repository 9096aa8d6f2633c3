# SPDX-License-Identifier: Apache-2.0
"""Every combination of the switches against the naive sums, and what each switch promises."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Literal, get_args, get_origin, get_type_hints

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.advantage.batches import Batch, batches, build
from tests.advantage.estimates import assert_close, estimate, per_turn
from tests.advantage.oracle import naive_advantages, naive_trloo
from verl_kernel.advantage.options import TrlooOptions, check_algorithm
from verl_kernel.advantage.turns import ZERO_REWARD

NAMES = ("trloo", "turn_grpo")
CHOICES = {key: get_args(hint) for key, hint in get_type_hints(TrlooOptions).items() if get_origin(hint) is Literal}
GAMMAS = (0.0, 0.5, 0.9, 1.0)
COMBINATIONS = [
    (name, dict(zip(("gamma", "count_rejected", *CHOICES), values, strict=True)))
    for name, *values in itertools.product(NAMES, GAMMAS, (True, False), *CHOICES.values())
    if not (values[0] == 1 and "difference_terminal" in values)
]


def reject(batch: Batch, kept: list[list[bool]]) -> Batch:
    """The batch with the masks that rejection leaves."""
    mask = batch.mask.clone()
    for i, row in enumerate(batch.spans):
        for (start, stop), keep in zip(row, kept[i], strict=True):
            mask[i, start:stop] *= keep
    return replace(batch, mask=mask)


@st.composite
def rejected_batches(draw: st.DrawFn) -> tuple[Batch, list[list[bool]]]:
    batch = draw(batches())
    kept = [[draw(st.booleans()) for _ in row] for row in batch.spans]
    return reject(batch, kept), kept


@settings(max_examples=600)
@given(drawn=rejected_batches(), combination=st.sampled_from(COMBINATIONS))
def test_every_combination_matches_the_naive_sums(drawn: tuple[Batch, list[list[bool]]], combination: tuple) -> None:
    batch, kept = drawn
    name, switches = combination
    advantages = estimate(name, batch, **switches)
    expected = naive_advantages(
        batch.turn_rewards,
        batch.uids,
        switches["gamma"],
        switches["singleton"],
        leave_one_out=name == "trloo",
        kept=None if switches["count_rejected"] else kept,
        shaping=switches["shaping"],
        credit=switches["credit"],
        normaliser=switches["normaliser"],
        baseline=switches["baseline"],
    )
    masked = [[v * on for v, on in zip(*row, strict=True)] for row in zip(expected, kept, strict=True)]
    assert_close(per_turn(batch, advantages), masked)
    assert advantages.isfinite().all()
    assert (advantages[batch.mask == 0] == 0).all()


def test_all_combinations_are_there() -> None:
    assert len(COMBINATIONS) == 2 * (4 * 2 * 2 * 3 * 2 - 2 * 2 * 2) * 2 * 2


@pytest.mark.parametrize("combination", COMBINATIONS, ids=str)
def test_every_combination_bears_rejection_of_all(combination: tuple) -> None:
    name, switches = combination
    batch = build([[1.0, 0.5], [2.0]], [[(0, 2), (3, 5)], [(0, 3)]], ["a", "a"])
    assert (estimate(name, replace(batch, mask=torch.zeros_like(batch.mask)), **switches) == 0).all()


@given(rejected_batches())
def test_kept_turns_sum_to_zero_without_rejected_ones(drawn: tuple[Batch, list[list[bool]]]) -> None:
    batch, _ = drawn
    values = per_turn(batch, estimate("trloo", batch, count_rejected=False))
    for uid in set(batch.uids):
        for t in range(4):
            group = [row[t] for row, own in zip(values, batch.uids, strict=True) if own == uid and len(row) > t]
            assert sum(group) == pytest.approx(0, abs=1e-4)


def test_rejected_turns_leave_size_and_mean_only_where_told() -> None:
    batch = build([[1.0], [3.0], [8.0]], [[(0, 2)]] * 3, ["a"] * 3)
    batch = reject(batch, [[True], [True], [False]])
    assert per_turn(batch, estimate("trloo", batch)) == [[-4.5], [-1.5], [0.0]]
    assert per_turn(batch, estimate("trloo", batch, count_rejected=False)) == [[-2.0], [2.0], [0.0]]


def test_one_token_left_is_a_turn_that_counts() -> None:
    batch = build([[1.0], [3.0]], [[(0, 4)]] * 2, ["a"] * 2)
    batch.mask[1, :3] = 0
    values = estimate("trloo", batch, count_rejected=False)
    assert values[0, :4].tolist() == [-2.0] * 4
    assert values[1, :4].tolist() == [0, 0, 0, 2.0]


def test_padded_groups_hold_rollouts_that_stopped() -> None:
    batch = build([[1.0, 3.0], [2.0], [1.0, 1.0]], [[(0, 1), (2, 3)], [(0, 1)], [(0, 1), (2, 3)]], ["a"] * 3)
    assert per_turn(batch, estimate("trloo", batch)) == [[2.0, 2.0], [-1.0], [-1.0, -2.0]]
    assert per_turn(batch, estimate("trloo", batch, baseline="padded")) == [[2.0, 2.5], [-1.0], [-1.0, -0.5]]
    alone = build([[1.0, 3.0], [2.0]], [[(0, 1), (2, 3)], [(0, 1)]], ["a"] * 2)
    assert per_turn(alone, estimate("trloo", alone))[0][1] == 0.0
    assert per_turn(alone, estimate("trloo", alone, baseline="padded"))[0][1] == 3.0


@pytest.mark.parametrize("baseline", ["turn", "padded"])
def test_calls_of_tools_are_part_of_the_one_turn(baseline: str) -> None:
    batch = build([[3.0], [1.0], [2.0]], [[(0, 6)], [(0, 2)], [(0, 6)]], ["a"] * 3)
    batch.mask[:, 2:4] = 0  # what the tool said
    values = estimate("trloo", batch, baseline=baseline)
    assert values[0, :6].tolist() == [1.5, 1.5, 0, 0, 1.5, 1.5]
    assert values[1, :6].tolist() == [-1.5, -1.5, 0, 0, 0, 0]
    assert values[2, :6].tolist() == [0.0] * 6


def test_padded_groups_lose_only_wholly_rejected_rollouts() -> None:
    spans = [[(0, 1), (2, 3), (4, 5)], [(0, 1), (2, 3)], [(0, 1)]]
    batch = build([[0.0, 0.0, 3.0], [0.0, 0.0], [0.0]], spans, ["a"] * 3)
    switches = {"baseline": "padded", "count_rejected": False, "gamma": 0.0, "singleton": "zero"}
    for kept, third in (
        ([[True, True, True], [True, False], [True]], 3.0),
        ([[True, True, True], [True, False], [False]], 3.0),
        ([[True, True, True], [False, False], [False]], 0.0),
    ):
        assert per_turn(batch, estimate("trloo", reject(batch, kept), **switches))[0][2] == third


@given(batches(min_turns=3, max_turns=3))
def test_padding_changes_nothing_for_equal_lengths(batch: Batch) -> None:
    assert torch.equal(estimate("trloo", batch), estimate("trloo", batch, baseline="padded"))


@given(batches(min_turns=4, max_turns=4))
def test_a_constant_changes_no_advantage_of_equal_lengths(batch: Batch) -> None:
    lifted = build([[r + 0.5 * t for t, r in enumerate(row)] for row in batch.turn_rewards], batch.spans, batch.uids)
    # A group of one has advantage 0 both times.
    for name in NAMES:
        actual = per_turn(lifted, estimate(name, lifted))
        flat = [value for row in per_turn(batch, estimate(name, batch)) for value in row]
        assert [value for row in actual for value in row] == pytest.approx(flat, abs=1e-5)


@given(batches())
def test_the_difference_telescopes_to_the_last_two_rewards(batch: Batch) -> None:
    gains = [[row[-1] - before for before in [0.0, *row[:-1]]] for row in batch.turn_rewards]
    # gamma 0 keeps the oracle from summing again what is a return already.
    assert_close(per_turn(batch, estimate("trloo", batch, shaping="difference")), naive_trloo(gains, batch.uids, 0.0))


@given(batch=batches(max_turns=1), gamma=st.sampled_from([0.0, 0.5]))
def test_one_turn_is_not_shaped_but_for_the_terminal_scale(batch: Batch, gamma: float) -> None:
    plain = per_turn(batch, estimate("trloo", batch, gamma=gamma))
    assert per_turn(batch, estimate("trloo", batch, gamma=gamma, shaping="difference")) == plain
    terminal = per_turn(batch, estimate("trloo", batch, gamma=gamma, shaping="difference_terminal"))
    assert_close(terminal, [[(1 - gamma) * value for value in row] for row in plain])


def test_an_empty_batch_stays_empty() -> None:
    for name, switches in COMBINATIONS:
        empty = Batch([], [], [], torch.zeros(0, 4), torch.zeros(0, 4, dtype=torch.int64))
        assert estimate(name, empty, **switches).shape == (0, 4)


def voids(rewards: list[float]) -> list[bool]:
    """Whether a turn earned nothing after one before it had earned something."""
    earned = [reward if abs(reward) > ZERO_REWARD else 0.0 for reward in rewards]
    return [reward <= 0 and any(earlier > 0 for earlier in earned[:t]) for t, reward in enumerate(earned)]


@pytest.mark.parametrize("baseline", CHOICES["baseline"])
@pytest.mark.parametrize("name", NAMES)
@given(batch=batches(), gamma=st.sampled_from(GAMMAS), singleton=st.sampled_from(CHOICES["singleton"]))
def test_void_turns_leave_groups_and_gradient(
    name: str, baseline: str, batch: Batch, gamma: float, singleton: str
) -> None:
    kept = [[not void for void in voids(rewards)] for rewards in batch.turn_rewards]
    expected = naive_advantages(
        batch.turn_rewards,
        batch.uids,
        gamma,
        singleton,
        leave_one_out=name == "trloo",
        kept=kept,
        baseline=baseline,
    )
    switches = {"gamma": gamma, "singleton": singleton, "baseline": baseline, "mask_void_turn": True}
    found = per_turn(batch, estimate(name, batch, **switches))
    assert_close(found, [[v * on for v, on in zip(*row, strict=True)] for row in zip(expected, kept, strict=True)])


def test_breaking_a_working_kernel_is_punished_unless_masked() -> None:
    spans = [[(0, 2), (3, 5)]] * 3
    batch = build([[1.0, 0.0], [1.0, 2.0], [0.0, 0.0]], spans, ["a"] * 3)
    assert [row[1] for row in per_turn(batch, estimate("trloo", batch))] == [-1.0, 2.0, -1.0]
    masked = per_turn(batch, estimate("trloo", batch, mask_void_turn=True))
    assert [row[1] for row in masked] == [0.0, 2.0, -2.0]
    assert [row[0] for row in masked] == [-0.5, 2.5, -2.0]
    penalty = build([[1.0, -0.5], [1.0, 2.0], [-1.0, -0.5]], spans, ["a"] * 3)
    assert [row[1] for row in per_turn(penalty, estimate("trloo", penalty, mask_void_turn=True))] == [0.0, 2.5, -2.5]


def test_the_discount_is_verls_where_the_node_leaves_it_open() -> None:
    for node, gamma in (({}, 0.5), ({"gamma": None}, 0.5), ({"gamma": 0.0}, 0.0)):
        assert check_algorithm({"gamma": 0.5, "trloo": node}).gamma == gamma
