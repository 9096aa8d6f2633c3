# SPDX-License-Identifier: Apache-2.0
"""`turn_grpo`: the ablation partner of `trloo`, whose baseline includes the turn itself (Dr. Kernel, Eq. 3 and 4).

    A[i, t] = G[i, t] - mean of G[., t]

The self-inclusive mean shrinks the expected gradient of a turn by 1 - 1/N, N the members of its group.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from verl_kernel.advantage.groups import estimate


def turn_grpo(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: np.ndarray,
    config: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns minus the mean over their whole group (Dr. Kernel, Eq. 3); arguments and errors of `trloo.trloo`."""
    return estimate(token_level_rewards, response_mask, index, config, leave_one_out=False)
