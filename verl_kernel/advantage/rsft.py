# SPDX-License-Identifier: Apache-2.0
"""`rsft`: right answers count 1, all others 0 (rejection-sampled fine-tuning, also RAFT, arXiv 2304.06767).

    A[i, t] = 1 where r[i, t] > 0, else 0

r is the reward of turn t of rollout i itself, neither shaped nor discounted: a wrong first turn before a right second
one is not learned from. Under the policy loss `gpg` the gradient is that of minus the log-likelihood of the accepted
turns, summed up as `actor.loss_agg_mode` says. Nothing is compared within a group.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from verl_kernel.advantage.groups import TurnBatch
from verl_kernel.advantage.registry import estimator


@estimator("rsft", grouped=False)
def rsft(batch: TurnBatch, algorithm: Mapping[str, Any]) -> torch.Tensor:
    """Return 1 for each turn that earned something, 0 for the others."""
    return (batch.turns.rewards > 0).double()
