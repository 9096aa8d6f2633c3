# SPDX-License-Identifier: Apache-2.0
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.advantage.batches import batches
from verl_kernel.advantage.turns import ZERO_REWARD, find_turns, marked_stops, place_turn_rewards
from verl_kernel.errors import DataError


def test_reward_sits_on_last_token_of_its_turn():
    scores = place_turn_rewards(6, [2, 5], [1.5, -0.5])
    assert scores.tolist() == [0, 1.5, 0, 0, -0.5, 0]
    assert scores.dtype is torch.float32


@pytest.mark.parametrize("reward", [0.0, -0.0, 1e-40, -1e-39])
def test_zero_reward_becomes_a_marker_that_survives_float32(reward):
    marker = place_turn_rewards(3, [3], [reward])[2].item()
    assert marker == ZERO_REWARD == 2.0**-126
    assert find_turns(torch.tensor([[0, 0, marker]])).rewards.tolist() == [[0.0]]


def test_zero_reward_marker_survives_bfloat16():
    scores = place_turn_rewards(4, [2, 4], [0.0, 1.0]).bfloat16()[None]
    assert find_turns(scores).index().tolist() == [[0, 0, 1, 1]]


@pytest.mark.parametrize("stops", [[0], [7], [3, 3], [4, 2]])
def test_ends_outside_the_response_are_refused(stops):
    with pytest.raises(DataError, match="response of 6 tokens"):
        place_turn_rewards(6, stops, [1.0] * len(stops))


@pytest.mark.parametrize("reward", [math.nan, math.inf])
def test_a_reward_that_is_no_number_is_refused(reward):
    with pytest.raises(DataError, match="finite"):
        place_turn_rewards(6, [3], [reward])


def test_row_without_marker_is_one_turn_of_reward_zero():
    turns = find_turns(torch.tensor([[0.0, 0.0, 0.0], [0.0, 1.0, 2.0]]))
    assert turns.present.tolist() == [[True, False], [True, True]]
    assert turns.lengths.tolist() == [[3, 0], [2, 1]]
    assert turns.rewards.tolist() == [[0, 0], [1, 2]]


def test_tokens_after_the_last_marker_belong_to_the_last_turn():
    assert find_turns(torch.tensor([[0, 1.0, 0, 2.0, 0, 0]])).index().tolist() == [[0, 0, 1, 1, 1, 1]]


def test_no_rows_and_no_tokens():
    assert find_turns(torch.zeros(0, 5)).index().shape == (0, 5)
    assert find_turns(torch.zeros(2, 0)).index().shape == (2, 0)


@given(batches())
def test_turns_round_trip(batch):
    turns = find_turns(batch.rewards)
    for i, expected in enumerate(batch.turn_rewards):
        assert turns.present[i].sum() == len(expected)
        assert marked_stops(batch.rewards[i]) == [stop for _, stop in batch.spans[i]]
        assert turns.rewards[i, : len(expected)].tolist() == pytest.approx(expected, abs=1e-37)
        index = turns.index()[i]
        for t, (start, stop) in enumerate(batch.spans[i]):
            assert (index[start:stop] == t).all()


@pytest.mark.slow
@given(batches(), st.integers(0, 3))
def test_any_memory_layout_gives_the_same_turns(batch, offset):
    rows, width = batch.rewards.shape
    shifted = torch.zeros(rows * width + offset)[offset:].view(rows, width).copy_(batch.rewards)
    for other in (shifted, torch.zeros(width, rows).t().copy_(batch.rewards), batch.rewards.double()):
        assert torch.equal(find_turns(other).index(), find_turns(batch.rewards).index())


@given(width=st.sampled_from([16, 64, 96, 100, 101]), rows=st.integers(1, 4), data=st.data())
def test_markers_are_found_in_rows_of_any_length(width, rows, data):
    rewards = torch.zeros(rows, width)
    values = st.sampled_from([ZERO_REWARD, 1.0, -1.0])
    for row, column in data.draw(st.lists(st.tuples(st.integers(0, rows - 1), st.integers(0, width - 1)), max_size=9)):
        rewards[row, column] = data.draw(values)
    rewards[rewards == 0] = data.draw(st.sampled_from([0.0, -0.0]))
    counts = find_turns(rewards).present.sum(dim=1)
    assert counts.tolist() == [max(1, int(row.count_nonzero())) for row in rewards]
    ends = (find_turns(rewards).index().diff(dim=1) == 1).nonzero().tolist()
    last = [max(row.nonzero().flatten().tolist(), default=0) for row in rewards]
    assert ends == [[i, j] for i, j in rewards.nonzero().tolist() if j != last[i]]
