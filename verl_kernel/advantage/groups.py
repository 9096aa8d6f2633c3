# SPDX-License-Identifier: Apache-2.0
"""Groups of turns and the baselines they give: what `trloo` and `turn_grpo` share.

A group is one turn number of one prompt. `baseline: turn` puts the rollouts into it that reached the turn,
`padded` all rollouts of the prompt, with return 0 for those that stopped before it. A turn is rejected when
`response_mask` holds none of its tokens, whoever emptied it; with `count_rejected: false` it leaves its group.
In a padded group, a rollout that stopped before the turn stays unless all its turns were rejected. With
`mask_void_turn`, a turn that earned nothing after an earlier one had earned something leaves its group too.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from verl_kernel.advantage.batch_log import log_batch
from verl_kernel.advantage.options import TrlooOptions, check_algorithm
from verl_kernel.advantage.returns import returns_to_go, shape_rewards
from verl_kernel.advantage.turns import Turns, find_turns


def members(turns: Turns, response_mask: torch.Tensor, options: TrlooOptions) -> torch.Tensor:
    """Whether a row counts in the group of its prompt and a turn: (B, K) bool."""
    counted = turns.present if options.baseline == "turn" else torch.ones_like(turns.present)
    if options.mask_void_turn:
        counted = counted & ~void_turns(turns)
    if options.count_rejected:
        return counted
    kept = turns.touched(response_mask)
    return counted & torch.where(turns.present, kept, kept.any(dim=1, keepdim=True))


def void_turns(turns: Turns) -> torch.Tensor:
    """Turns that earned nothing, or lost, after an earlier turn had earned something: (B, K) bool."""
    best = turns.rewards.cummax(dim=1).values[:, :-1]
    before = torch.cat([torch.zeros_like(turns.rewards[:, :1]), best], dim=1)
    return turns.present & (before > 0) & (turns.rewards <= 0)


def turn_advantages(
    returns: torch.Tensor, counted: torch.Tensor, index: np.ndarray, singleton: str, *, leave_one_out: bool
) -> torch.Tensor:
    """Advantage of each turn against its group, the counted rows with the same `index`.

    Args:
        returns: (B, K) float64.
        counted: (B, K) bool, membership.
        index: (B,) prompt identifiers.
        singleton: what a group of one gets, `zero` or `raw`.
        leave_one_out: exclude the turn itself from its baseline.

    Returns:
        (B, K) float64, finite; 0 where a row is no member.
    """
    group = torch.from_numpy(np.unique(index, return_inverse=True)[1].reshape(-1)).to(returns.device)
    empty = returns.new_zeros(int(group.max()) + 1 if len(group) else 0, returns.shape[1])
    sizes, totals = (
        empty.index_add(0, group, values).index_select(0, group) for values in (counted.double(), returns * counted)
    )
    advantages = returns - totals / sizes.clamp_min(1)
    if leave_one_out:
        advantages = advantages * sizes / (sizes - 1).clamp_min(1)
    alone = returns if singleton == "raw" else torch.zeros_like(returns)
    return torch.where(sizes > 1, advantages, alone) * counted


def estimate(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: np.ndarray,
    config: Mapping[str, Any] | None,
    *,
    leave_one_out: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Advantages of tokens, twice, for an estimator that verl calls; see `trloo.trloo`."""
    options = check_algorithm(config)
    with torch.no_grad():
        turns = find_turns(token_level_rewards)
        returns = returns_to_go(shape_rewards(turns, options.shaping, options.gamma), options.gamma)
        counted = members(turns, response_mask, options)
        advantages = turn_advantages(returns, counted, index, options.singleton, leave_one_out=leave_one_out)
        tokens = turns.spread(advantages.float(), response_mask)
    if options.record_dir:
        log_batch(Path(options.record_dir), token_level_rewards, response_mask, index, tokens)
    return tokens, tokens
