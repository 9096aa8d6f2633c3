# SPDX-License-Identifier: Apache-2.0
"""Random batches of trajectories for the tests of this folder."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from hypothesis import strategies as st

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


def build(turn_rewards: list[list[float]], spans: list[list[tuple[int, int]]], uids: list[str]) -> Batch:
    width = max([stop for row in spans for _, stop in row], default=0) + 2
    rewards, mask = torch.zeros(len(spans), width), torch.zeros(len(spans), width, dtype=torch.int64)
    for i, row in enumerate(spans):
        length = row[-1][1]
        rewards[i, :length] = place_turn_rewards(length, [stop for _, stop in row], turn_rewards[i])
        for start, stop in row:
            mask[i, start:stop] = 1
    return Batch(turn_rewards, spans, uids, rewards, mask)


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
    uids = [draw(st.sampled_from(["a", "b", "padc"])) for _ in spans]
    return build(turn_rewards, spans, uids)
