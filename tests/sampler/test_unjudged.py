# SPDX-License-Identifier: Apache-2.0
"""What the gym could not judge teaches nothing, is in no group, and is counted."""

from __future__ import annotations

import pytest
import torch
import transfer_queue as tq

from tests.reward.results import correct, failed
from tests.sampler.trajectories import advantages_of, make_buffer, put, trajectory
from verl_kernel.errors import InfraError
from verl_kernel.reward.record import TurnRecord

GOOD, LOST = correct(2.0, 0.9), failed("infra_error", correctness=None)
MODES = ["sync", "colocate_async", "separate_async"]
ESTIMATORS = ("trloo", "turn_grpo", "rloo", "grpo", "reinforce_plus_plus_baseline")


def played(*rewards: float | None) -> tuple[list[int], list[TurnRecord]]:
    """A trajectory that earned this in its turns; `None` is a turn that could not be judged."""
    mask, turns = trajectory(*(LOST if reward is None else GOOD for reward in rewards))
    earned = (0.0 if reward is None else reward for reward in rewards)
    return mask, [one.model_copy(update={"reward": reward}) for one, reward in zip(turns, earned, strict=True)]


@pytest.mark.parametrize("mode", MODES)
def test_equal_rollouts_stay_equal_when_a_judge_is_lost(queue: None, mode: str) -> None:
    put("train", "u", [played(2, 2, 2), played(2, None), played(2, 2, 2)])
    batch, metrics = make_buffer(mode).sample(1, "train", 1)
    assert sorted(batch.keys) == ["u_0_0", "u_2_0"]
    assert len(batch.tags) == 2
    for name in ESTIMATORS:
        assert not advantages_of(batch, name).any(), name
    assert metrics["kernel/unjudged_fraction"] == pytest.approx(1 / 3)
    assert metrics["kernel/infra_error_rate"] == metrics["kernel/status/infra_error"] == 1 / 8
    assert metrics["kernel/turn_2/infra_error_rate"] == pytest.approx(1 / 3)
    assert metrics["kernel/turn_1/infra_error_rate"] == 0
    assert metrics["kernel/turn_2/reward/mean"] == 2
    assert set((tq.kv_list() or {})["train"]) == set(batch.keys)


def test_the_others_get_what_they_would_get_alone(queue: None) -> None:
    put("train", "a", [played(1, 3), played(None), played(2, 0), played(0, None)])
    put("train", "b", [played(1, 3), played(2, 0)])
    batch, _ = make_buffer().sample(1, "train", 2)
    assert sorted(batch.keys) == ["a_0_0", "a_2_0", "b_0_0", "b_1_0"]
    found = dict(zip(batch.keys, advantages_of(batch, "trloo"), strict=True))
    assert found["a_0_0"].any()
    assert torch.equal(found["a_0_0"], found["b_0_0"])
    assert torch.equal(found["a_2_0"], found["b_1_0"])


@pytest.mark.parametrize("with_turns", [True, False])
def test_a_loss_in_the_only_turn_is_counted(queue: None, with_turns: bool) -> None:
    put("train", "u", [played(1), played(None), played(1), played(None)], with_turns=with_turns)
    batch, metrics = make_buffer().sample(1, "train", 1)
    assert sorted(batch.keys) == ["u_0_0", "u_2_0"]
    assert metrics["kernel/unjudged_fraction"] == 0.5
    assert metrics.get("kernel/turn_1/infra_error_rate") == (0.5 if with_turns else None)


def test_a_sampler_that_rejects_nothing_takes_them_out_too(queue: None) -> None:
    put("train", "u", [played(1), played(None)])
    batch, _ = make_buffer(enabled=False).sample(1, "train", 1)
    assert batch.keys == ["u_0_0"]


def test_validation_keeps_them(queue: None) -> None:
    put("val", "u", [played(1), played(None)])
    batch, _ = make_buffer().sample(1, "val", 1)
    assert sorted(batch.keys) == ["u_0_0", "u_1_0"]


def test_a_batch_without_one_judged_trajectory_stops_the_run(queue: None) -> None:
    put("train", "u", [played(None), played(1, None)])
    with pytest.raises(InfraError, match="step 4: the gym could judge none of the 2 trajectories.*last checkpoint"):
        make_buffer().sample(4, "train", 1)


def test_a_lost_turn_does_not_make_a_flat_prompt_uneven(queue: None) -> None:
    made = []

    def refill(count: int) -> None:
        for _ in range(count):
            made.append(f"new{len(made)}")
            put("train", made[-1], [played(1), played(2)])

    put("train", "flat", [played(1, 1), played(1, 1), played(1, None)])
    batch, metrics = make_buffer("colocate_async", refill, group_filter="refill").sample(1, "train", 1)
    assert sorted(batch.keys) == ["new0_0_0", "new0_1_0"]
    assert metrics["training/filter_groups/evicted_samples"] == 1


def test_a_prompt_of_which_nothing_was_judged_is_not_flat(queue: None) -> None:
    put("train", "gone", [played(None), played(None)])
    put("train", "told", [played(1), played(2)])
    buffer = make_buffer("colocate_async", lambda count: pytest.fail("nothing is flat"), group_filter="refill")
    batch, _ = buffer.sample(1, "train", 2)
    assert sorted(batch.keys) == ["told_0_0", "told_1_0"]
