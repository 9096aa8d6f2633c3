# SPDX-License-Identifier: Apache-2.0
"""Turn-level group-relative advantages: `trloo` and its ablation partner `turn_grpo` (Dr. Kernel, Eq. 2 to 5).

For rollout i of a prompt, turn t of its T_i turns, and N the rollouts of the prompt that reached turn t:

    G[i, t] = sum over s >= t of gamma^(s - t) * r[i, s]
    trloo:     A[i, t] = G[i, t] - mean of G[j, t] over j != i = N / (N - 1) * (G[i, t] - mean of G[., t])
    turn_grpo: A[i, t] = G[i, t] - mean of G[., t]

The self-inclusive mean of `turn_grpo` shrinks the expected gradient by 1 - 1/N; nothing is divided by a
standard deviation. Every token of a turn carries the turn's advantage, times `response_mask`. A turn that
rejection sampling took out of the mask still counts in N and in the mean. Like verl's own outcome
estimators, both return the advantages a second time as `returns`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

from verl_kernel.advantage.batch_log import log_batch
from verl_kernel.advantage.turns import Turns, find_turns
from verl_kernel.errors import ConfigError


@dataclass(frozen=True)
class TrlooOptions:
    """Options of both estimators, read from `algorithm.trloo`.

    Raises:
        ConfigError: a value is out of its range; the message names `algorithm.trloo.<key>`.
    """

    gamma: float = 1.0
    """Discount between turns, in [0, 1]; `algorithm.gamma` where the node does not say."""
    singleton: str = "zero"
    """Advantage of a turn that only one rollout reached: `zero`, or `raw` (its return, no baseline)."""
    record_dir: str | None = None
    """Folder for `batch_log`, a file per call; nothing is written when null."""

    def __post_init__(self) -> None:
        if isinstance(self.gamma, bool) or not isinstance(self.gamma, int | float) or not 0 <= self.gamma <= 1:
            raise ConfigError(f"algorithm.trloo.gamma is {self.gamma!r}; it must be a number between 0 and 1")
        if self.singleton not in ("zero", "raw"):
            raise ConfigError(f"algorithm.trloo.singleton is {self.singleton!r}; it must be zero or raw")


def check_algorithm(config: Mapping[str, Any] | None) -> TrlooOptions:
    """Validate verl's `algorithm` node for a turn-level estimator and read its options.

    Args:
        config: the node (anything with `get`); `None` means defaults.

    Raises:
        ConfigError: `use_kl_in_reward` is on, or `algorithm.trloo` holds an unknown key or a bad value.
    """
    if config is None:
        return TrlooOptions()
    if config.get("use_kl_in_reward", False):
        raise ConfigError(
            "algorithm.use_kl_in_reward is on, which overwrites the turn boundaries kept in the token-level rewards; "
            "turn it off and penalise divergence with actor_rollout_ref.actor.use_kl_loss=True (actor.use_kl_loss)"
        )
    node = config.get("trloo", None) or {}
    allowed = [field.name for field in fields(TrlooOptions)]
    for key in node:
        if key not in allowed:
            raise ConfigError(f"algorithm.trloo.{key} is unknown; the keys are {', '.join(allowed)}")
    return TrlooOptions(**{"gamma": config.get("gamma", 1.0), **dict(node)})


def returns_to_go(turns: Turns, gamma: float) -> torch.Tensor:
    """Discounted sum of each turn's own and later rewards: (B, K) float64."""
    returns = turns.rewards.clone()
    for turn in range(returns.shape[1] - 2, -1, -1):
        returns[:, turn] += gamma * returns[:, turn + 1]
    return returns


def turn_advantages(
    turns: Turns, index: np.ndarray, options: TrlooOptions, *, leave_one_out: bool = True
) -> torch.Tensor:
    """Advantage of each turn against its group, the rollouts with the same `index` that reached the turn.

    Args:
        turns: B rows of at most K turns.
        index: (B,) prompt identifiers.
        options: discount, and what a group of one gets.
        leave_one_out: exclude the turn itself from its baseline.

    Returns:
        (B, K) float64; 0 where a row has no such turn.
    """
    returns = returns_to_go(turns, options.gamma)
    group = torch.from_numpy(np.unique(index, return_inverse=True)[1].reshape(-1)).to(returns.device)
    shape = (int(group.max()) + 1 if len(group) else 0, returns.shape[1])
    sizes, totals = (
        returns.new_zeros(shape).index_add_(0, group, values)[group] for values in (turns.present.double(), returns)
    )
    advantages = returns - totals / sizes.clamp_min(1)
    if leave_one_out:
        advantages = advantages * sizes / (sizes - 1).clamp_min(1)
    alone = returns if options.singleton == "raw" else torch.zeros_like(returns)
    return torch.where(sizes > 1, advantages, alone) * turns.present


def _estimate(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: np.ndarray,
    config: Mapping[str, Any] | None,
    *,
    leave_one_out: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    options = check_algorithm(config)
    with torch.no_grad():
        turns = find_turns(token_level_rewards)
        advantages = turn_advantages(turns, index, options, leave_one_out=leave_one_out)
        tokens = turns.spread(advantages.float()).mul_(response_mask)
    if options.record_dir:
        log_batch(Path(options.record_dir), token_level_rewards, response_mask, index, tokens)
    return tokens, tokens


def trloo(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: np.ndarray,
    config: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Turn-level REINFORCE leave-one-out (Dr. Kernel, Eq. 5), as verl calls an advantage estimator.

    Args:
        token_level_rewards: (B, T) float, turn rewards placed by `turns.place_turn_rewards`.
        response_mask: (B, T), 1 on the tokens that enter the loss.
        index: (B,) `uid` of each row's prompt.
        config: verl's `algorithm` node.
        kwargs: whatever else verl hands to estimators; not used.

    Returns:
        Advantages, twice: (B, T) float32.

    Raises:
        ConfigError: see `check_algorithm`.
    """
    return _estimate(token_level_rewards, response_mask, index, config, leave_one_out=True)


def turn_grpo(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: np.ndarray,
    config: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`trloo` with the mean over the whole group, self included (Dr. Kernel, Eq. 3); same arguments."""
    return _estimate(token_level_rewards, response_mask, index, config, leave_one_out=False)
