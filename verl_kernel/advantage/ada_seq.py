# SPDX-License-Identifier: Apache-2.0
"""`ada_seq`: the estimator of Reinforce-Ada-Seq (arXiv 2510.04996, Algorithm 2), per (prompt, turn) group.

    A[i, t] = w * (G[i, t] - mean of G[j, t] over ALL rollouts j that were drawn for the prompt)

The trained rollouts are a choice from the pool, half of them positive where it could be had: their own mean says little
about the prompt. So advantages of a group need not sum up to 0. w is 1, or with `algorithm.ada.weight: inverse_p` the
inverse of the pool's share of positives, at most `weight_cap`. The sampler leaves the pools in `adaptive.run_state`; a
prompt without one is compared with the mean of its own rows (the metric `ada/missing_pools` counts these).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from verl_kernel.adaptive import AdaOptions, PoolStatistics
from verl_kernel.adaptive.run_state import current
from verl_kernel.advantage.groups import TurnBatch, estimate_by, void_turns
from verl_kernel.advantage.options import TrlooOptions
from verl_kernel.advantage.returns import returns_to_go, shape_rewards
from verl_kernel.advantage.turns import Turns


def ada_seq(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: np.ndarray,
    config: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns minus the mean of their prompt's pool (Reinforce-Ada-Seq); arguments and errors of `trloo.trloo`.

    Raises:
        ConfigError: besides, `algorithm.ada` holds an unknown key or a bad value.
    """
    ada = AdaOptions.from_node((config or {}).get("ada", None))
    state = current()
    pools = state.pools if state is not None else {}

    def rule(batch: TurnBatch) -> torch.Tensor:
        groups = batch.groups()
        advantages = groups.settle(batch.returns - groups.means, batch.options.singleton)
        for uid in set(index) & pools.keys():
            rows = torch.from_numpy(np.flatnonzero(index == uid)).to(advantages.device)
            mean = pool_mean(pools[uid], batch.options, advantages.shape[1]).to(advantages.device)
            weight = pools[uid].weight(ada.weight_cap) if ada.weight == "inverse_p" else 1.0
            advantages[rows] = weight * (batch.returns[rows] - mean) * batch.counted[rows]
        return advantages

    return estimate_by(rule, token_level_rewards, response_mask, index, config)


def pool_mean(pool: PoolStatistics, options: TrlooOptions, width: int) -> torch.Tensor:
    """Mean return of a pool's rollouts in each turn, over those that reached it (all of them in padded groups).

    Args:
        pool: the pool.
        options: discount, shaping and kind of group.
        width: turns K of the batch; a rollout that reached more was not kept.

    Returns:
        (K,) float64; 0 where no rollout reached the turn.
    """
    longest = max([width, *map(len, pool.rewards)])
    rewards = torch.zeros(len(pool.rewards), longest, dtype=torch.float64)
    present = torch.zeros(rewards.shape, dtype=torch.bool)
    for i, own in enumerate(pool.rewards):
        rewards[i, : len(own)] = torch.tensor(own, dtype=torch.float64)
        present[i, : len(own)] = True
    turns = Turns(rewards, present.long(), present, longest)
    returns = returns_to_go(shape_rewards(turns, options.shaping, options.gamma), options.gamma)
    counted = present if options.baseline == "turn" else torch.ones_like(present)
    if options.mask_void_turn:
        counted = counted & ~void_turns(turns)
    return ((returns * counted).sum(0) / counted.sum(0).clamp_min(1))[:width]
