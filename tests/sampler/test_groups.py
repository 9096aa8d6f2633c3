# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from verl.trainer.ppo.core_algos import get_adv_estimator_fn

import verl_kernel.advantage
from tests.reward.results import correct, turn
from verl_kernel.advantage.turns import place_turn_rewards
from verl_kernel.sampler.groups import has_zero_variance, zero_variance_prompts

assert verl_kernel.advantage
REWARDS = st.lists(st.lists(st.sampled_from([0.0, 0.5, 2.0]), min_size=1, max_size=3), min_size=2, max_size=4)


def advantages(rewards: list[list[float]], gamma: float) -> torch.Tensor:
    stops = [[2 * (number + 1) for number in range(len(row))] for row in rewards]
    scores = torch.stack([place_turn_rewards(6, *row) for row in zip(stops, rewards, strict=True)])
    mask = torch.tensor([[int(token < row[-1]) for token in range(6)] for row in stops])
    config = {"trloo": {"gamma": gamma}}
    index = np.array(["p"] * len(rewards), dtype=object)
    found, _ = get_adv_estimator_fn("trloo")(token_level_rewards=scores, response_mask=mask, config=config, index=index)
    return found


@given(REWARDS)
def test_what_is_flat_teaches_nothing(rewards: list[list[float]]) -> None:
    if has_zero_variance(rewards, 0.0):
        assert all(not advantages(rewards, gamma).abs().gt(1e-6).any() for gamma in (0.0, 0.5, 1.0))


@given(st.lists(st.tuples(*[st.sampled_from([0.0, 0.5, 2.0])] * 3).map(list), min_size=2, max_size=4))
def test_what_teaches_nothing_is_flat_where_turns_are_as_many(rewards: list[list[float]]) -> None:
    assert has_zero_variance(rewards, 0.0) == (not advantages(rewards, 0.5).abs().gt(1e-6).any())


@pytest.mark.parametrize(
    ("rewards", "flat"),
    [
        ([[1.0, 2.0], [1.0, 2.0]], True),
        ([[1.0, 2.0], [2.0, 2.0]], False),  # The last turns agree.
        ([[1.0, 2.0], [2.0, 1.0]], False),  # The sums agree.
        ([[1.0, 0.0], [1.0]], True),
        ([[1.0, 2.0], [1.0]], False),
        ([[1.0]], False),
        ([[1.0], []], False),
        ([[0.0], []], False),
        ([[], []], False),
        ([], False),
    ],
)
def test_all_turns_are_looked_at(rewards: list[list[float]], flat: bool) -> None:
    assert has_zero_variance(rewards, 0.0) is flat


def test_a_small_spread_counts_as_none() -> None:
    assert has_zero_variance([[1.0], [1.001]], 0.001)
    assert not has_zero_variance([[1.0], [1.003]], 0.001)


@pytest.mark.parametrize(
    ("rewards", "flat"),
    [
        ([[1.0, 2.0], [0.0, 2.0]], True),  # Earlier turns have no say.
        ([[1.0, 2.0], [1.0, 2.5]], False),
        ([[1.0, 2.0], [2.0]], True),  # Each rollout's own last turn.
        ([[1.0, 2.0], [1.0]], False),
        ([[2.0]], False),
        ([[2.0], []], False),
    ],
)
def test_the_last_turn_alone_is_looked_at(rewards: list[list[float]], flat: bool) -> None:
    rows = [(f"a_{i}_0", [turn(correct(), reward=reward) for reward in row]) for i, row in enumerate(rewards)]
    assert zero_variance_prompts(rows, 0.0, "last_turn") == {"a": flat}


def test_prompts_are_told_apart_by_uid() -> None:
    rows = [
        (f"{uid}_{session}_0", [turn(correct(), reward=reward)])
        for uid, session, reward in [("a", 0, 1.0), ("b", 0, 1.0), ("a", 1, 1.0), ("b", 1, 2.0)]
    ]
    assert zero_variance_prompts(rows, 0.0) == {"a": True, "b": False}
