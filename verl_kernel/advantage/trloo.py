# SPDX-License-Identifier: Apache-2.0
"""`trloo`: turn-level REINFORCE with a leave-one-out baseline (Dr. Kernel, Eq. 2 and 5).

For rollout i of a prompt, turn t of its T_i turns, and N the members of the turn's group (`groups`):

    G[i, t] = sum over s >= t of gamma^(s - t) * r[i, s]
    A[i, t] = G[i, t] - mean of G[j, t] over j != i = N / (N - 1) * (G[i, t] - mean of G[., t])

Nothing is divided by a standard deviation. Every token of a turn carries the turn's advantage, times
`response_mask`. Like verl's own outcome estimators, it returns the advantages a second time as `returns`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from verl_kernel.advantage.groups import estimate


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
        ConfigError: see `options.check_algorithm`.
    """
    return estimate(token_level_rewards, response_mask, index, config, leave_one_out=True)
