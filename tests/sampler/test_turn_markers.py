# SPDX-License-Identifier: Apache-2.0
"""Rewards that no longer mark the ends of turns are refused before an estimator reads them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import transfer_queue as tq
from hypothesis import given
from hypothesis import strategies as st
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from tests.reward.results import correct, failed
from tests.sampler.test_unjudged import played
from tests.sampler.trajectories import make_buffer, put, trajectory
from verl_kernel.advantage.turns import ZERO_REWARD, marked_stops, place_turn_rewards
from verl_kernel.errors import DataError


def halved_without_denormals(scores: torch.Tensor) -> torch.Tensor:
    half = scores * 0.5
    return torch.where(half.abs() < ZERO_REWARD, 0, half)


def with_a_penalty(scores: torch.Tensor) -> torch.Tensor:
    return scores.index_add(0, torch.tensor([1]), torch.tensor([-0.1]))


def pulled_to_the_left(scores: torch.Tensor) -> torch.Tensor:
    return scores.roll(-1)


def summed_up(scores: torch.Tensor) -> torch.Tensor:
    return place_turn_rewards(len(scores), [len(scores)], [float(scores.sum())])


def rewrite(keys: list[str], change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Change the rewards of rows in the queue."""
    found = tq.kv_batch_get(keys=keys, partition_id="train", select_fields=["rm_scores"])["rm_scores"].unbind()
    fields = list_of_dict_to_tensordict([{"rm_scores": change(scores)} for scores in found])
    tq.kv_batch_put(keys=keys, partition_id="train", fields=fields)


@pytest.mark.parametrize(
    "change", [torch.Tensor.half, halved_without_denormals, with_a_penalty, pulled_to_the_left, summed_up]
)
@pytest.mark.parametrize("mode", ["sync", "colocate_async", "separate_async"])
def test_turns_that_moved_end_the_step(queue: None, mode: str, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    put("train", "u", [played(2.0, 0.0), played(0.0, 1.0)])
    rewrite(["u_0_0", "u_1_0"], change)
    with pytest.raises(
        DataError, match=r"step 7: the turns of trajectory u_0_0 end at tokens \[3, 9\].*float32"
    ) as error:
        make_buffer(mode).sample(7, "train", 1)
    assert "reward term" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("change", [torch.Tensor.double, torch.Tensor.bfloat16, lambda scores: scores * 2])
def test_a_change_that_leaves_turns_where_they_are_passes(
    queue: None, change: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    put("train", "u", [played(2.0, 0.0), played(0.0, 1.0)])
    rewrite(["u_0_0", "u_1_0"], change)
    batch, _ = make_buffer(enabled=False).sample(1, "train", 1)
    assert sorted(batch.keys) == ["u_0_0", "u_1_0"]


def test_a_sampler_without_rejection_looks_too(queue: None) -> None:
    put("train", "u", [played(1.0, 0.0)])
    rewrite(["u_0_0"], torch.Tensor.half)
    with pytest.raises(DataError, match="float16"):
        make_buffer(enabled=False).sample(1, "train", 1)


@pytest.mark.parametrize("partition", ["train", "val"])
def test_rows_of_other_loops_and_of_validation_are_not_asked(queue: None, partition: str) -> None:
    put(partition, "u", [trajectory(correct(), failed())], with_turns=partition == "val")
    batch, _ = make_buffer().sample(1, partition, 1)
    assert batch.keys == ["u_0_0"]


@given(st.data())
def test_marked_stops_are_those_that_were_written(data: st.DataObject) -> None:
    length = data.draw(st.integers(1, 200))
    stops = sorted(data.draw(st.sets(st.integers(1, length), max_size=6)))
    rewards = [data.draw(st.sampled_from([0.0, -0.0, 1e-40, -1.0, 2.5])) for _ in stops]
    assert marked_stops(place_turn_rewards(length, stops, rewards)) == stops
