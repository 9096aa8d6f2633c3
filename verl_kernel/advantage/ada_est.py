# SPDX-License-Identifier: Apache-2.0
"""`ada_est`: the estimator of Reinforce-Ada-Est (arXiv 2510.04996, Algorithm 1), per (prompt, turn) group.

    A[i, t] = (G[i, t] - mean of G[., t]) / sqrt(max(mean of G[., t], 0) + epsilon)

G is the return of `trloo`, and a turn that is alone in its group gets what `algorithm.trloo.singleton` says. The
paper's rewards are 0 or 1, where the mean is a pass rate. Penalties can make a mean negative: it counts as 0 under the
root, so such a group has the largest factor, 1 / sqrt(epsilon).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from verl_kernel.adaptive import AdaOptions
from verl_kernel.advantage.groups import TurnBatch, estimate_by


def ada_est(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: np.ndarray,
    config: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns minus their group's mean, over its root (Reinforce-Ada-Est); arguments and errors of `trloo.trloo`.

    Raises:
        ConfigError: besides, `algorithm.ada` holds an unknown key or a bad value.
    """
    ada = AdaOptions.from_node((config or {}).get("ada", None))

    def rule(batch: TurnBatch) -> torch.Tensor:
        groups = batch.groups()
        root = (groups.means.clamp_min(0) + ada.epsilon).sqrt()
        return groups.settle((batch.returns - groups.means) / root, batch.options.singleton)

    return estimate_by(rule, token_level_rewards, response_mask, index, config)
