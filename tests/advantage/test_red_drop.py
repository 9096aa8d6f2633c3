# SPDX-License-Identifier: Apache-2.0
"""`red_drop_balance`: whom it drops, that its draw is fair, and that neither order nor names decide."""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.advantage.batches import Batch, batches, build, estimated, masked, rejected_batches
from tests.advantage.oracle import returns_to_go


def drop(batch: Batch, seed: int = 0, **switches: object) -> list[list[float]]:
    return estimated("red_drop_balance", batch, rec={"red_drop_seed": seed}, **switches)


def rollouts(rewards: list[float]) -> Batch:
    """Rollouts of one prompt and one turn, of lengths of their own."""
    return build([[reward] for reward in rewards], [[(0, i + 1)] for i in range(len(rewards))], ["a"] * len(rewards))


def groups_of(batch: Batch, gamma: float) -> dict[tuple[str, int], list[tuple[int, float]]]:
    """The rows of every (prompt, turn), with their returns."""
    found: dict[tuple[str, int], list[tuple[int, float]]] = {}
    for row, (uid, rewards) in enumerate(zip(batch.uids, batch.turn_rewards, strict=True)):
        for t, value in enumerate(returns_to_go(rewards, gamma)):
            found.setdefault((uid, t), []).append((row, value))
    return found


@settings(max_examples=100)
@given(batch=batches(max_rows=12), seed=st.integers(0, 9), gamma=st.sampled_from([0.0, 0.5, 1.0]))
def test_kept_turns_are_balanced_and_centred_and_the_rest_is_0(batch, seed, gamma):
    advantages = drop(batch, seed, gamma=gamma)
    for (_, t), members in groups_of(batch, gamma).items():
        returns = [value for _, value in members]
        found = [advantages[row][t] for row, _ in members]
        mean = sum(returns) / len(returns)
        bad = [value < mean - 1e-9 * (1 + abs(value)) for value in returns]
        surplus = max(0, 2 * sum(bad) - len(bad))
        # Every choice of as many negatives as there are too many, and the advantages that it leads to.
        possible = []
        for lost in itertools.combinations([i for i, negative in enumerate(bad) if negative], surplus):
            kept = [value for i, value in enumerate(returns) if i not in lost]
            centre = sum(kept) / len(kept)
            alone = len(kept) == 1
            possible.append([0.0 if i in lost or alone else value - centre for i, value in enumerate(returns)])
        assert any(found == pytest.approx(values, abs=1e-5) for values in possible)
        assert sum(found) == pytest.approx(0, abs=1e-4)


def test_nothing_is_dropped_where_positives_are_no_fewer():
    for rewards in ([1.0, 1.0, 0.0], [1.0, 0.0], [0.1, 0.1, 0.1], [0.7] * 7, [3.0]):
        batch = rollouts(rewards)
        assert drop(batch) == estimated("rec_group_mean", batch)


@given(batch=batches(max_rows=10), seed=st.integers(0, 99))
def test_neither_order_nor_names_of_prompts_decide(batch, seed):
    order = np.random.default_rng(seed).permutation(len(batch.uids))
    names = {uid: f"{seed}-{uid}" for uid in batch.uids}
    other = Batch(
        [batch.turn_rewards[i] for i in order], [batch.spans[i] for i in order], [names[batch.uids[i]] for i in order],
        batch.rewards[order], batch.mask[order],
    )  # fmt: skip
    before, after = drop(batch), drop(other)
    # Rows that look alike may stand in for each other.
    rows = zip(batch.uids, batch.turn_rewards, batch.spans, strict=True)
    looks = [(uid, tuple(row), tuple(map(tuple, spans))) for uid, row, spans in rows]
    for look in set(looks):
        same = [i for i, own in enumerate(looks) if own == look]
        moved = [int(np.flatnonzero(order == i)[0]) for i in same]
        for t in range(len(before[same[0]])):
            assert sorted(before[i][t] for i in same) == pytest.approx(sorted(after[i][t] for i in moved), abs=1e-6)


def test_company_from_other_prompts_and_padding_change_nothing():
    batch = rollouts([1.0, 0.0, 0.0, 0.0, 0.5, 0.0])
    wide = build([*batch.turn_rewards, [0.0, 2.0]], [*batch.spans, [(0, 30), (31, 90)]], [*batch.uids, "b"])
    assert drop(wide)[:6] == drop(batch)


def test_every_negative_is_dropped_as_often_as_the_others():
    batch = rollouts([1.0, 0.0, 0.0, 0.0, 0.0])
    dropped = Counter(row for seed in range(200) for row, (value,) in enumerate(drop(batch, seed)) if value == 0)
    assert set(dropped) == {1, 2, 3, 4}
    assert sum(dropped.values()) == 3 * 200
    # 150 each, with a deviation of 6.
    assert all(125 < count < 175 for count in dropped.values())


def test_a_seed_gives_one_draw_and_turns_are_drawn_apart():
    batch = build([[2.0, 2.0]] + [[0.0, 0.0]] * 7, [[(0, i + 1), (i + 2, 2 * i + 4)] for i in range(8)], ["a"] * 8)
    assert drop(batch, 3) == drop(batch, 3)
    draws = [drop(batch, seed) for seed in range(20)]
    assert len({str(draw) for draw in draws}) > 1
    assert any([a == 0 for a, _ in draw] != [b == 0 for _, b in draw] for draw in draws)


@given(drawn=rejected_batches(), padded=st.sampled_from(["turn", "padded"]))
def test_rejected_turns_may_leave_the_balance(drawn, padded):
    batch, kept = drawn
    values = drop(batch, count_rejected=False, baseline=padded)
    assert values == masked(values, kept)
    if padded == "turn":
        for (_, t), members in groups_of(batch, 1.0).items():
            assert sum(values[row][t] for row, _ in members) == pytest.approx(0, abs=1e-4)
