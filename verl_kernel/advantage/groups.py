# SPDX-License-Identifier: Apache-2.0
"""Returns of turns, their groups, and the groups' baselines, which all turn-level estimators share.

A group belongs to one turn number of one prompt. With `baseline: turn` its members are the rollouts that reached the
turn, with `padded` all rollouts of the prompt, with return 0 for those that stopped before it. A turn is rejected when
`response_mask` holds none of its tokens, for any reason; with `count_rejected: false` it leaves its group.
In a padded group, a rollout that stopped before the turn stays unless all its turns were rejected. With
`mask_void_turn`, a turn that earned nothing although an earlier one earned something leaves its group too.

With `difference` a turn earns its gain over the turn before, r[t] - r[t-1] with r[0] = 0. Its return is then

    (1 - gamma) * (r[t] + ... + gamma^(T-1-t) * r[T-1]) + gamma^(T-t) * r[T] - r[t-1]

over a rollout's T turns: the last reward weighs 1 where the others weigh 1 - gamma, because no later turn
subtracts it. `difference_terminal` multiplies the last reward by 1 - gamma first, so that the return is the unshaped
one times 1 - gamma, minus r[t-1], which turn t cannot change: the same gradient, scaled, with a baseline.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from verl_kernel.advantage.options import TrlooOptions
from verl_kernel.advantage.turns import Turns

_EPSILON = 1e-6
"""Added to a standard deviation before anything is divided by it; verl's GRPO has the same."""


def shape_rewards(turns: Turns, shaping: str, gamma: float) -> torch.Tensor:
    """Return the rewards of turns after shaping: (B, K) float64, 0 where a row has no such turn."""
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
    """Return the discounted sum of each turn's own and later rewards: (B, K) to (B, K)."""
    returns = rewards.clone()
    for turn in range(returns.shape[1] - 2, -1, -1):
        returns[:, turn] += gamma * returns[:, turn + 1]
    return returns


def turn_returns(turns: Turns, options: TrlooOptions) -> torch.Tensor:
    """Return what each turn is credited with, by `shaping`, `gamma` and `credit` of the options: (B, K) float64."""
    returns = returns_to_go(shape_rewards(turns, options.shaping, options.gamma), options.gamma)
    return returns if options.credit == "turn" else returns[:, :1].expand_as(returns)


def members(turns: Turns, response_mask: torch.Tensor, options: TrlooOptions) -> torch.Tensor:
    """Return whether a row counts in the group of its prompt and a turn: (B, K) bool."""
    counted = turns.present if options.baseline == "turn" else torch.ones_like(turns.present)
    if options.mask_void_turn:
        counted = counted & ~void_turns(turns)
    if options.count_rejected:
        return counted
    has_tokens = turns.touched(response_mask)
    return counted & torch.where(turns.present, has_tokens, has_tokens.any(dim=1, keepdim=True))


def void_turns(turns: Turns) -> torch.Tensor:
    """Return which turns earned nothing, or lost, after an earlier turn had earned something: (B, K) bool."""
    best = turns.rewards.cummax(dim=1).values[:, :-1]
    before = torch.cat([torch.zeros_like(turns.rewards[:, :1]), best], dim=1)
    return turns.present & (before > 0) & (turns.rewards <= 0)


@dataclass(frozen=True)
class Groups:
    """The (prompt, turn) groups of B trajectories of at most K turns: their members and what these have in common."""

    returns: torch.Tensor
    """Return of each turn: (B, K) float64."""
    counted: torch.Tensor
    """(B, K) bool: whether the row is a member of the group of its prompt and the turn."""
    prompts: torch.Tensor
    """(B,) int64: the number of each row's prompt."""
    sizes: torch.Tensor
    """(B, K) float64: the number of members in each row's group."""
    means: torch.Tensor
    """(B, K) float64: mean return of the members; 0 where there are none."""

    def deviations(self) -> torch.Tensor:
        """Return the standard deviation of the members' returns, with one degree of freedom less: (B, K) float64."""
        squares = sum_groups((self.returns - self.means).square() * self.counted, self.prompts)
        return (squares / (self.sizes - 1).clamp_min(1)).sqrt()

    def settle(self, advantages: torch.Tensor, singleton: str) -> torch.Tensor:
        """Keep the advantages of members with company; lone members get what `singleton` says, others 0: (B, K)."""
        alone = self.returns if singleton == "raw" else torch.zeros_like(self.returns)
        return torch.where(self.sizes > 1, advantages, alone) * self.counted


def group_turns(returns: torch.Tensor, counted: torch.Tensor, index: np.ndarray) -> Groups:
    """Group the turns of rows with the same `index`: takes (B, K) float64, (B, K) bool and (B,)."""
    prompts = number_prompts(index, returns.device)
    sizes, totals = (sum_groups(values, prompts) for values in (counted.double(), returns * counted))
    return Groups(returns, counted, prompts, sizes, totals / sizes.clamp_min(1))


def number_prompts(index: np.ndarray, device: torch.device) -> torch.Tensor:
    """Number the prompts of rows from 0; `index` (B,) identifies them: (B,) int64."""
    return torch.from_numpy(np.unique(index, return_inverse=True)[1].reshape(-1)).to(device)


def sum_groups(values: torch.Tensor, prompts: torch.Tensor) -> torch.Tensor:
    """Give each row the sum over its group: (B, K) and (B,) to (B, K)."""
    empty = values.new_zeros(int(prompts.max()) + 1 if len(prompts) else 0, values.shape[1])
    return empty.index_add(0, prompts, values).index_select(0, prompts)


def turn_advantages(groups: Groups, options: TrlooOptions, *, leave_one_out: bool) -> torch.Tensor:
    """Return the advantage of each turn against its group's mean, by the options.

    `singleton`, `normaliser` and `negative_weight` are read.

    Args:
        groups: groups of B trajectories of at most K turns.
        options: those of the estimator.
        leave_one_out: exclude the turn itself from its baseline.

    Returns:
        (B, K) float64, finite; 0 where a row is no member.
    """
    advantages = groups.returns - groups.means
    if leave_one_out:
        advantages = advantages * groups.sizes / (groups.sizes - 1).clamp_min(1)
    if options.normaliser == "deviation":
        advantages = advantages / (groups.deviations() + _EPSILON)
    settled = groups.settle(advantages, options.singleton)
    return torch.where(settled < 0, options.negative_weight * settled, settled)


@dataclass(frozen=True)
class TurnBatch:
    """The input of an estimator: the turns of a batch, their returns and the members of each group."""

    turns: Turns
    response_mask: torch.Tensor
    """`response_mask`: (B, T)."""
    index: np.ndarray
    """(B,) prompt identifiers."""
    options: TrlooOptions
    returns: torch.Tensor
    """Discounted returns of the shaped rewards: (B, K) float64."""
    counted: torch.Tensor
    """Whether a row is a member of the group of its prompt and the turn: (B, K) bool."""

    def groups(self) -> Groups:
        """Return the groups of the batch."""
        return group_turns(self.returns, self.counted, self.index)
