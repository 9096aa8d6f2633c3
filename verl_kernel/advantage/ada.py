# SPDX-License-Identifier: Apache-2.0
"""`ada_est` and `ada_seq`: the estimators of Reinforce-Ada (arXiv 2510.04996), per (prompt, turn) group.

    ada_est   A[i, t] = (G[i, t] - mean of G[., t]) / sqrt(p + epsilon)                              Algorithm 1
    ada_seq   A[i, t] = w * (G[i, t] - mean of G[j, t] over ALL rollouts j drawn for the prompt)     Algorithm 2

G is the return of `trloo`, and a turn alone in its group gets the advantage that `algorithm.trloo.singleton` chooses.

p is the prompt's pass rate by `algorithm.ada.positive`. The budgets come from such rates too, so rollouts and
advantages together weigh a prompt by 1 / p. The sampler writes p to `adaptive.run_state`; a prompt without one (no
budgets, padding) uses the share of the group's returns above 0. The paper's rewards are 0 or 1, and p is their mean.
With graded rewards, the mean return would depend on their scale; `root: mean_return` uses it nevertheless, with 0 for a
negative mean.

`ada_seq` trains on rollouts chosen from the pool, half of them positive if possible, so their own mean says little
about the prompt. It uses the pool's mean instead, so the advantages of a group need not sum up to 0. w is 1, or with
`algorithm.ada.weight: inverse_p` the inverse of the pool's share of positives, at most `weight_cap`. The sampler writes
the pools to `adaptive.run_state`; a prompt without a pool is compared with the mean of the prompt's rows (the metric
`ada/missing_pools` counts these prompts).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from verl_kernel.adaptive import AdaOptions, PoolStatistics
from verl_kernel.adaptive.run_state import current
from verl_kernel.advantage.groups import Groups, TurnBatch, sum_groups, turn_returns, void_turns
from verl_kernel.advantage.options import TrlooOptions
from verl_kernel.advantage.registry import estimator
from verl_kernel.advantage.turns import Turns


@estimator("ada_est", grouped=True)
def ada_est(batch: TurnBatch, algorithm: Mapping[str, Any]) -> torch.Tensor:
    """Return each turn's return minus the group's mean, divided by the root of the pass rate (Reinforce-Ada-Est).

    Raises:
        ConfigError: `algorithm.ada` holds an unknown key or a bad value.
    """
    ada, state = AdaOptions.from_node(algorithm.get("ada", None)), current()
    pass_rates = state.pass_rates if state is not None else {}
    groups = batch.groups()
    share = groups.means.clamp_min(0) if ada.root == "mean_return" else _pass_rates(groups, batch.index, pass_rates)
    return groups.settle((batch.returns - groups.means) / (share + ada.epsilon).sqrt(), batch.options.singleton)


def _pass_rates(groups: Groups, index: np.ndarray, pass_rates: Mapping[str, float]) -> torch.Tensor:
    """Return the known pass rate of each row's prompt, else its group's share of returns above 0: (B, K) float64."""
    passed = sum_groups(((groups.returns > 0) & groups.counted).double(), groups.prompts)
    rates = passed / groups.sizes.clamp_min(1)
    for uid in set(index) & pass_rates.keys():
        rates[torch.from_numpy(index == uid).to(rates.device)] = pass_rates[uid]
    return rates


@estimator("ada_seq", grouped=False)
def ada_seq(batch: TurnBatch, algorithm: Mapping[str, Any]) -> torch.Tensor:
    """Return each turn's return minus the mean of the prompt's pool (Reinforce-Ada-Seq).

    Raises:
        ConfigError: `algorithm.ada` holds an unknown key or a bad value.
    """
    ada, state = AdaOptions.from_node(algorithm.get("ada", None)), current()
    pools = state.pools if state is not None else {}
    groups = batch.groups()
    advantages = groups.settle(batch.returns - groups.means, batch.options.singleton)
    for uid in set(batch.index) & pools.keys():
        rows = torch.from_numpy(np.flatnonzero(batch.index == uid)).to(advantages.device)
        mean = pool_mean(pools[uid], batch.options, advantages.shape[1]).to(advantages.device)
        weight = pools[uid].weight(ada.weight_cap) if ada.weight == "inverse_p" else 1.0
        advantages[rows] = weight * (batch.returns[rows] - mean) * batch.counted[rows]
    return advantages


def pool_mean(pool: PoolStatistics, options: TrlooOptions, width: int) -> torch.Tensor:
    """Return the mean return of a pool's rollouts at each turn, over those that reached it (padded groups: over all).

    Args:
        pool: the pool.
        options: discount, shaping and kind of group.
        width: turns K of the batch; a rollout with more turns was not kept.

    Returns:
        (K,) float64; 0 where no rollout reached the turn.
    """
    longest = max([width, *map(len, pool.rewards)])
    rewards = torch.zeros(len(pool.rewards), longest, dtype=torch.float64)
    present = torch.zeros(rewards.shape, dtype=torch.bool)
    for i, turn_rewards in enumerate(pool.rewards):
        rewards[i, : len(turn_rewards)] = torch.tensor(turn_rewards, dtype=torch.float64)
        present[i, : len(turn_rewards)] = True
    turns = Turns(rewards, present.long(), present, longest)
    returns = turn_returns(turns, options)
    counted = present if options.baseline == "turn" else torch.ones_like(present)
    if options.mask_void_turn:
        counted = counted & ~void_turns(turns)
    return ((returns * counted).sum(0) / counted.sum(0).clamp_min(1))[:width]
