# SPDX-License-Identifier: Apache-2.0
"""`opmd_baseline`: the baseline of online policy mirror descent (OPMD, arXiv 2509.24203).

    A[i, t] = G[i, t] - mean of G[., t]                                    baseline mean
    A[i, t] = G[i, t] - tau * log(mean of exp(G[., t] / tau))              baseline logavgexp

The second is the value of the regularised problem, whose temperature is tau: the mean for large tau, the largest return
for small. The loss that goes with it, `opmd_scaled`, divides by 1 + tau.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from verl_kernel.advantage.groups import Groups, TurnBatch, estimate_by, sum_groups
from verl_kernel.advantage.rec_options import RecOptions


def opmd_baseline(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: np.ndarray,
    config: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns minus the mean or the log-average-exp of their group (OPMD); arguments and errors of `trloo.trloo`."""
    options = RecOptions.from_node((config or {}).get("rec", None))

    def rule(batch: TurnBatch) -> torch.Tensor:
        groups = batch.groups()
        baseline = groups.means if options.opmd_baseline == "mean" else log_mean_exp(groups, options.opmd_tau)
        return groups.settle(batch.returns - baseline, batch.options.singleton)

    return estimate_by(rule, token_level_rewards, response_mask, index, config)


def log_mean_exp(groups: Groups, tau: float) -> torch.Tensor:
    """The log-average-exp of each group's returns at a temperature: (B, K) float64, 0 where a group has no members."""
    lowest = torch.where(groups.counted, groups.returns, -torch.inf)
    rows = groups.prompts[:, None].expand_as(lowest)
    largest = torch.full_like(lowest, -torch.inf).scatter_reduce(0, rows, lowest, "amax").gather(0, rows)
    largest = torch.where(groups.sizes > 0, largest, 0.0)
    # The largest is taken out before the exponential, which would overflow for a small tau.
    above = torch.where(groups.counted, (groups.returns - largest) / tau, -torch.inf).exp()
    mean = sum_groups(above, groups.prompts) / groups.sizes.clamp_min(1)
    return largest + tau * torch.where(groups.sizes > 0, mean, 1.0).log()
