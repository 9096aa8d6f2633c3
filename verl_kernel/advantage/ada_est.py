# SPDX-License-Identifier: Apache-2.0
"""`ada_est`: the estimator of Reinforce-Ada-Est (arXiv 2510.04996, Algorithm 1), per (prompt, turn) group.

    A[i, t] = (G[i, t] - mean of G[., t]) / sqrt(p + epsilon)

G is the return of `trloo`, and a turn that is alone in its group gets what `algorithm.trloo.singleton` says. p is the
prompt's pass rate, by what `algorithm.ada.positive` calls positive: the budgets are made from such rates too, so that
rollouts and advantages together weigh a prompt by 1 / p. The sampler leaves it in `adaptive.run_state`; where it has
none (no budgets, padding), p is the share of the group's returns above 0. The paper's rewards are 0 or 1, and p is
their mean. With rewards that grade, the mean return would depend on their scale; `root: mean_return` takes it
nevertheless, a negative one as 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from verl_kernel.adaptive import AdaOptions
from verl_kernel.adaptive.run_state import current
from verl_kernel.advantage.groups import Groups, TurnBatch, estimate_by, sum_groups


def ada_est(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: np.ndarray,
    config: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns minus their group's mean, over the root of the pass rate; arguments and errors of `trloo.trloo`.

    Raises:
        ConfigError: besides, `algorithm.ada` holds an unknown key or a bad value.
    """
    ada, state = AdaOptions.from_node((config or {}).get("ada", None)), current()
    known = state.pass_rates if state is not None else {}

    def rule(batch: TurnBatch) -> torch.Tensor:
        groups = batch.groups()
        share = groups.means.clamp_min(0) if ada.root == "mean_return" else _pass_rates(groups, index, known)
        return groups.settle((batch.returns - groups.means) / (share + ada.epsilon).sqrt(), batch.options.singleton)

    return estimate_by(rule, token_level_rewards, response_mask, index, config)


def _pass_rates(groups: Groups, index: np.ndarray, known: Mapping[str, float]) -> torch.Tensor:
    """The known pass rate of each row's prompt, else the share of its group's returns above 0: (B, K) float64."""
    passed = sum_groups(((groups.returns > 0) & groups.counted).double(), groups.prompts)
    rates = passed / groups.sizes.clamp_min(1)
    for uid in set(index) & known.keys():
        rates[torch.from_numpy(index == uid).to(rates.device)] = known[uid]
    return rates
