# SPDX-License-Identifier: Apache-2.0
"""`asymre_shift`: the group mean lowered a little (AsymRE, arXiv 2506.20520; arXiv 2509.24203).

    A[i, t] = G[i, t] - (mean of G[., t] + shift),    shift -0.1 by default

Lowering the baseline by b adds b to every advantage, which is the gradient of b * log pi of the sampled tokens: a
forward-KL pull towards the policy that sampled them. `asymre_kl` is the same thing written as a policy loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from verl_kernel.advantage.groups import TurnBatch, estimate_by
from verl_kernel.advantage.rec_options import RecOptions


def asymre_shift(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: np.ndarray,
    config: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns minus the shifted mean of their group (AsymRE); arguments and errors of `trloo.trloo`.

    A turn that is alone in its group has no mean to shift: it gets what `algorithm.trloo.singleton` says.
    """
    shift = RecOptions.from_node((config or {}).get("rec", None)).asymre_shift

    def rule(batch: TurnBatch) -> torch.Tensor:
        groups = batch.groups()
        return groups.settle(batch.returns - (groups.means + shift), batch.options.singleton)

    return estimate_by(rule, token_level_rewards, response_mask, index, config)
