# SPDX-License-Identifier: Apache-2.0
"""Prompts whose rollouts tie: which do, and how they leave the batch, are replaced, or wait for a full one."""

from collections.abc import Callable

import pytest
from verl.trainer.ppo.v1.utils import MetricsAggregator

from tests.reward.results import correct, turn
from tests.sampler.trajectories import clear, left, make_buffer, modes, prompts, put
from verl_kernel.reward.record import TurnRecord
from verl_kernel.sampler.groups import has_zero_variance, zero_variance_prompts

Rows = list[tuple[list[int], list[TurnRecord]]]


def rollouts(*rewards: tuple[float, ...]) -> Rows:
    """Trajectories of turns of 3 tokens that earned this."""
    rows = []
    for earned in rewards:
        mask = [1, 1, 1, *[0, 1, 1, 1] * (len(earned) - 1)]
        rows.append((mask, [turn(correct(), 4 * i, 4 * i + 3, reward=r) for i, r in enumerate(earned)]))
    return rows


SAME_END = rollouts((0.0, 2.0), (1.0, 2.0))
TIED = rollouts((1.0, 2.0), (1.0, 2.0))
SAME_START = rollouts((1.0, 2.0), (1.0, 1.0))


def maker(rows: Callable[[int], Rows], step: Callable[[int], int]) -> tuple[list[str], Callable[[int], None]]:
    """What verl's trainer submits: the n-th prompt has the rollouts `rows(n)` and was drawn in step `step(n)`."""
    made: list[str] = []

    def refill(count: int) -> None:
        for _ in range(count):
            made.append(f"p{len(made)}")
            put("train", made[-1], rows(len(made) - 1), step=step(len(made) - 1))

    return made, refill


@modes
@pytest.mark.parametrize(("spread", "gone"), [("turns", {"p0"}), ("last_turn", {"p0", "p2"})])
def test_prompts_whose_turns_tie_are_replaced(queue, mode, spread, gone):
    _made, refill = maker(lambda n: {0: TIED, 2: SAME_END}.get(n, SAME_START), lambda n: 1)
    refill(3)
    batch, metrics = make_buffer(mode, refill, group_filter="refill", group_spread=spread).sample(1, "train", 3)
    # verl asks for more than it evicted and takes any three of those that are left.
    assert len(prompts(batch.keys)) == 3
    assert not prompts(batch.keys) & gone
    assert metrics["training/filter_groups/evicted_samples"] == len(gone)
    assert metrics["groups/flat_fraction"] == 0


@modes
@pytest.mark.parametrize(("spread", "kept"), [("turns", {"b", "c"}), ("last_turn", {"c"})])
def test_prompts_whose_turns_tie_leave_the_batch(queue, mode, spread, kept):
    for uid, rows in (("a", TIED), ("b", SAME_END), ("c", SAME_START)):
        put("train", uid, rows)
    batch, metrics = make_buffer(mode, group_filter="drop", group_spread=spread).sample(1, "train", 3)
    assert prompts(batch.keys) == kept
    assert len(batch.tags) == 2 * len(kept)
    assert metrics["groups/dropped"] == 3 - len(kept)
    assert metrics["groups/flat_fraction"] == pytest.approx((3 - len(kept)) / 3)
    assert left() == set(batch.keys)


def test_a_batch_of_flat_prompts_stays_whole(queue):
    put("train", "e1", TIED)
    batch, metrics = make_buffer(group_filter="drop").sample(1, "train", 1)
    assert len(batch.keys) == 2
    assert (metrics["groups/dropped"], metrics["groups/flat_fraction"]) == (0, 1)


def test_flat_prompts_do_not_count_as_ready(queue):
    put("train", "h1", TIED)
    put("train", "h2", SAME_START)
    buffer = make_buffer("separate_async", lambda count: pytest.fail("counting replaces none"), group_filter="refill")
    assert [buffer.get_sampleable_count(1, "train") for _ in range(2)] == [1, 1]


@modes
def test_every_step_has_its_own_quota_of_replacements(queue, mode):
    """A policy of one answer does not refill for ever."""
    _made, refill = maker(lambda n: TIED, lambda n: 1)
    buffer = make_buffer(mode, refill, group_filter="refill", group_refills=2)
    for step in (1, 2):
        refill(2)
        batch, metrics = buffer.sample(step, "train", 2)
        clear(batch)
        assert len(prompts(batch.keys)) == 2
        assert metrics["training/filter_groups/evicted_samples"] == 4, step
        assert metrics["groups/flat_fraction"] == 1


def test_prompts_that_teach_wait_for_the_batch_to_fill(queue):
    """The published buffer: rounds of prompts without an update between them, until enough have a spread."""
    # verl takes the oldest: drawn one after another, they come in order.
    _made, refill = maker(lambda n: SAME_START if n % 3 == 0 else SAME_END, lambda n: n)
    refill(3)
    batch, _ = make_buffer("sync", refill, group_filter="refill", group_spread="last_turn").sample(1, "train", 3)
    assert prompts(batch.keys) == {"p0", "p3", "p6"}


def steps(carry_over: bool, flat: set[int]) -> tuple[list[set[str]], list[dict], list[str]]:
    """Three steps in sync of two prompts each, submitted by the trainer as verl's does; what they trained on."""
    made, refill = maker(lambda n: SAME_END if n in flat else SAME_START, lambda n: step)
    buffer = make_buffer("sync", refill, group_filter="refill", group_spread="last_turn", group_carry_over=carry_over)
    trained, metrics = [], []
    for step in (1, 2, 3):
        refill(2)
        batch, found = buffer.sample(step, "train", 2)
        trained.append(prompts(batch.keys))
        metrics.append(found)
        clear(batch)
    return trained, metrics, made


def test_prompts_beyond_the_batch_are_kept_for_the_next_step(queue):
    trained, metrics, _made = steps(True, {0})
    # p0 is flat, and verl asks for two prompts in its place. The oldest go first: one of every step waits for the next.
    submitted = [{"p1", "p2", "p3"}, {"p4", "p5"}, {"p6", "p7"}]
    assert trained[0] < submitted[0]
    assert submitted[0] - trained[0] < trained[1]
    assert submitted[1] - trained[1] < trained[2]
    assert len(trained[1] & submitted[1]) == len(trained[2] & submitted[2]) == 1
    assert [found["groups/carried_over"] for found in metrics] == [1, 1, 1]
    assert not any("training/filter_groups/discarded_surplus_samples" in found for found in metrics)
    assert len(prompts(left())) == 1
    assert prompts(left()) < submitted[2]
    aggregator = MetricsAggregator()
    aggregator.add_step_metrics(metrics[0], sample_count=4)
    assert aggregator.get_aggregated_metrics()["groups/carried_over"] == 1


def test_a_kept_prompt_spares_a_replacement(queue):
    trained, metrics, made = steps(True, {0, 5})
    # p5 is flat, and what the first step left fills its place.
    assert trained[0] | trained[1] == {"p1", "p2", "p3", "p4"}
    assert trained[2] == {"p6", "p7"}
    assert len(made) == 8
    assert [found["groups/carried_over"] for found in metrics] == [1, 0, 0]


def test_without_the_switch_they_are_thrown_away(queue):
    trained, metrics, made = steps(False, {0})
    assert trained[0] < {"p1", "p2", "p3"}
    assert trained[1:] == [{"p4", "p5"}, {"p6", "p7"}]
    assert len(made) == 8
    assert metrics[0]["training/filter_groups/discarded_surplus_samples"] == 1
    assert not any("groups/carried_over" in found for found in metrics)
    assert not left()


@pytest.mark.parametrize("carry_over", [True, False])
def test_validation_carries_nothing_over(queue, carry_over):
    put("val", "a", SAME_START)
    put("val", "b", SAME_START)
    buffer = make_buffer("sync", group_filter="refill", group_carry_over=carry_over, refill_fn=lambda count: None)
    batch, metrics = buffer.sample(1, "val", 2)
    assert prompts(batch.keys) == {"a", "b"}
    assert "groups/carried_over" not in metrics


@pytest.mark.parametrize(("spread", "rewards", "flat"), [
    ("turns", [[1.0, 2.0], [1.0, 2.0]], True),
    ("turns", [[1.0, 2.0], [2.0, 2.0]], False),  # The last turns agree.
    ("turns", [[1.0, 2.0], [2.0, 1.0]], False),  # The sums agree.
    ("turns", [[1.0, 0.0], [1.0]], True), ("turns", [[1.0, 2.0], [1.0]], False), ("turns", [[1.0]], False),
    ("turns", [[1.0], []], False), ("turns", [[0.0], []], False), ("turns", [[], []], False),
    ("last_turn", [[1.0, 2.0], [0.0, 2.0]], True),  # Earlier turns have no say.
    ("last_turn", [[1.0, 2.0], [1.0, 2.5]], False),
    ("last_turn", [[1.0, 2.0], [2.0]], True),  # Each rollout's own last turn.
    ("last_turn", [[1.0, 2.0], [1.0]], False), ("last_turn", [[2.0]], False), ("last_turn", [[2.0], []], False),
])  # fmt: skip
def test_which_prompts_are_flat(spread, rewards, flat):
    rows = [(f"a_{i}_0", [turn(correct(), reward=reward) for reward in row]) for i, row in enumerate(rewards)]
    assert zero_variance_prompts(rows, 0.0, spread) == {"a": flat}


def test_a_small_spread_counts_as_none():
    assert has_zero_variance([[1.0], [1.001]], 0.001)
    assert not has_zero_variance([[1.0], [1.003]], 0.001)
    assert not has_zero_variance([], 0.0)


def test_prompts_are_told_apart_by_uid():
    rewards = {"a_0_0": 1.0, "b_0_0": 1.0, "a_1_0": 1.0, "b_1_0": 2.0}
    rows = [(key, [turn(correct(), reward=reward)]) for key, reward in rewards.items()]
    assert zero_variance_prompts(rows, 0.0) == {"a": True, "b": False}
