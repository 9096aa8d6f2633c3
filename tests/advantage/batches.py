# SPDX-License-Identifier: Apache-2.0
"""Random batches of trajectories, calls of the estimators as verl makes them, and their answers by turn."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from omegaconf import OmegaConf

from verl_kernel.advantage import ESTIMATORS
from verl_kernel.advantage.turns import place_turn_rewards


@dataclass
class Batch:
    turn_rewards: list[list[float]]
    spans: list[list[tuple[int, int]]]
    uids: list[str]
    rewards: torch.Tensor
    mask: torch.Tensor

    @property
    def index(self) -> np.ndarray:
        return np.array(self.uids, dtype=object)


EMPTY = Batch([], [], [], torch.zeros(0, 4), torch.zeros(0, 4, dtype=torch.int64))


def build(turn_rewards: list[list[float]], spans: list[list[tuple[int, int]]], uids: list[str]) -> Batch:
    width = max([stop for row in spans for _, stop in row], default=0) + 2
    rewards, mask = torch.zeros(len(spans), width), torch.zeros(len(spans), width, dtype=torch.int64)
    for i, row in enumerate(spans):
        length = row[-1][1]
        rewards[i, :length] = place_turn_rewards(length, [stop for _, stop in row], turn_rewards[i])
        for start, stop in row:
            mask[i, start:stop] = 1
    return Batch(turn_rewards, spans, uids, rewards, mask)


def reject(batch: Batch, kept: list[list[bool]]) -> Batch:
    """The batch with the masks that rejection leaves."""
    mask = batch.mask.clone()
    for i, row in enumerate(batch.spans):
        for (start, stop), keep in zip(row, kept[i], strict=True):
            mask[i, start:stop] *= keep
    return replace(batch, mask=mask)


def masked(values: list[list[float]], kept: list[list[bool]]) -> list[list[float]]:
    """The values of turns, 0 for those that are rejected."""
    return [[value * keep for value, keep in zip(*row, strict=True)] for row in zip(values, kept, strict=True)]


@st.composite
def batches(draw: st.DrawFn, max_rows: int = 8, max_turns: int = 4, min_turns: int = 1) -> Batch:
    turn_rewards: list[list[float]] = []
    spans: list[list[tuple[int, int]]] = []
    reward = st.sampled_from([0.0, 0.5, 1.0, 2.5, -0.25]) | st.floats(-3, 3, width=32)
    for _ in range(draw(st.integers(1, max_rows))):
        turns = draw(st.integers(min_turns, max_turns))
        turn_rewards.append([draw(reward) for _ in range(turns)])
        cursor, row = 0, []
        for t in range(turns):
            start = cursor + (draw(st.integers(0, 3)) if t else 0)
            cursor = start + draw(st.integers(1, 4))
            row.append((start, cursor))
        spans.append(row)
    return build(turn_rewards, spans, [draw(st.sampled_from(["a", "b", "padc"])) for _ in spans])


@st.composite
def rejected_batches(draw: st.DrawFn) -> tuple[Batch, list[list[bool]]]:
    batch = draw(batches())
    kept = [[draw(st.booleans()) for _ in row] for row in batch.spans]
    return reject(batch, kept), kept


def estimate(name: str, batch: Batch, **nodes: Any) -> torch.Tensor:
    """Advantages of tokens; `rec`, `topr` and `ada` are nodes of verl's `algorithm`, other keys are of `trloo`."""
    others = {key: nodes.pop(key, None) or {} for key in ("rec", "topr", "ada")}
    config = OmegaConf.create({"gamma": 1.0, "use_kl_in_reward": False, "trloo": nodes, **others})
    advantages, returns = ESTIMATORS[name](batch.rewards, batch.mask, index=batch.index, config=config)
    assert torch.equal(advantages, returns)
    return advantages


def per_turn(batch: Batch, advantages: torch.Tensor) -> list[list[float]]:
    """One value per turn, after checking that all its tokens carry the same."""
    values: list[list[float]] = []
    for i, row in enumerate(batch.spans):
        values.append([])
        for start, stop in row:
            tokens = advantages[i, start:stop]
            assert (tokens == tokens[0]).all()
            values[i].append(tokens[0].item())
    return values


def estimated(name: str, batch: Batch, **nodes: Any) -> list[list[float]]:
    return per_turn(batch, estimate(name, batch, **nodes))


def assert_close(actual: list[list[float]], expected: list[list[float]]) -> None:
    assert [len(row) for row in actual] == [len(row) for row in expected]
    flat = [value for row in expected for value in row]
    assert [value for row in actual for value in row] == pytest.approx(flat, rel=1e-5, abs=1e-6)
