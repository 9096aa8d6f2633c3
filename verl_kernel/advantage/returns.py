# SPDX-License-Identifier: Apache-2.0
"""Returns of turns: shaping of their rewards, then the discounted sum over the turns to come.

With `difference` a turn earns what it adds to the turn before, r[t] - r[t-1] with r[0] = 0. Its return is then

    (1 - gamma) * (r[t] + ... + gamma^(T-1-t) * r[T-1]) + gamma^(T-t) * r[T] - r[t-1]

over a rollout's T turns: the last reward weighs 1 where the others weigh 1 - gamma, because no later turn takes
it back. `difference_terminal` multiplies the last reward by 1 - gamma first, so that the return is the unshaped
one times 1 - gamma, minus r[t-1], which turn t cannot change: the same gradient, scaled, with a baseline.
"""

from __future__ import annotations

import torch

from verl_kernel.advantage.turns import Turns


def shape_rewards(turns: Turns, shaping: str, gamma: float) -> torch.Tensor:
    """Rewards of turns after shaping: (B, K) float64, 0 where a row has no such turn."""
    if shaping == "none":
        return turns.rewards
    nothing = torch.zeros_like(turns.rewards[:, :1])
    before = torch.cat([nothing, turns.rewards[:, :-1]], dim=1)
    rewards = turns.rewards
    if shaping == "difference_terminal":
        goes_on = torch.cat([turns.present[:, 1:], nothing.bool()], dim=1)
        rewards = torch.where(goes_on, rewards, (1 - gamma) * rewards)
    return (rewards - before) * turns.present


def returns_to_go(rewards: torch.Tensor, gamma: float) -> torch.Tensor:
    """Discounted sum of each turn's own and later rewards: (B, K) to (B, K)."""
    returns = rewards.clone()
    for turn in range(returns.shape[1] - 2, -1, -1):
        returns[:, turn] += gamma * returns[:, turn + 1]
    return returns
