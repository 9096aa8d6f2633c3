# SPDX-License-Identifier: Apache-2.0
"""Rejection and weights of whole turns or trajectories by pi_train / pi_rollout (Dr. Kernel, Eq. 6, per turn).

Within `response_mask`, a run of ones is a turn: feedback lies between two turns, and rejection takes whole turns. For
the tokens of a turn (or of a trajectory), with r their ratios,

    w = exp(mean log r);    it stays where low <= w <= high and no r is below `veto`
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from verl_kernel.loss.options import TurnCorrectionOptions


@dataclass(frozen=True)
class Verdicts:
    """What became of the M segments (turns or trajectories) of a batch."""

    weights: torch.Tensor
    """(B, T) float32: weight of each token in the loss; 0 where it is masked or rejected."""
    kept: torch.Tensor
    """(M,) bool."""
    vetoed: torch.Tensor
    """(M,) bool."""
    log_ratio: torch.Tensor
    """(M,) float64: log w."""


def number_segments(mask: torch.Tensor, level: str) -> tuple[torch.Tensor, int]:
    """Number the turns or trajectories that have tokens: (B, T) bool to (B, T) int64, and how many there are.

    The number of a token outside the mask means nothing.
    """
    if level == "turn":
        starts = mask.clone()
        starts[:, 1:] &= ~mask[:, :-1]
    else:
        starts = mask & (mask.cumsum(dim=1) == 1)
    numbers = starts.reshape(-1).cumsum(0).view_as(mask) - 1
    return numbers.clamp_min(0), int(starts.sum())


def judge(ratios: torch.Tensor, mask: torch.Tensor, options: TurnCorrectionOptions) -> Verdicts:
    """Decide about every turn or trajectory.

    Args:
        ratios: (B, T) pi_train / pi_rollout of the tokens; whatever outside the mask.
        mask: (B, T) bool.
        options: the rule.
    """
    numbers, count = number_segments(mask, options.level)
    tokens, whole = ratios[mask].double(), numbers[mask]
    logs = tokens.clamp_min(torch.finfo(torch.float32).tiny).log()
    sums = logs.new_zeros(count).index_add_(0, whole, logs)
    sizes = logs.new_zeros(count).index_add_(0, whole, torch.ones_like(logs))
    lowest = logs.new_full((count,), math.inf).scatter_reduce_(0, whole, logs, "amin")
    means = sums / sizes
    vetoed = lowest < math.log(options.veto) if options.veto else torch.zeros_like(means, dtype=torch.bool)
    low = math.log(options.low) if options.low else -math.inf
    high = math.log(options.high) if options.high else math.inf
    kept = (means >= low) & (means <= high) & ~vetoed
    segments = {"token": logs, "geometric": means[whole], "product": sums[whole]}.get(options.weights)
    # Cut before the exponential: products of long turns overflow.
    values = torch.ones_like(logs) if segments is None else segments.clamp_max(math.log(options.cap)).exp()
    weights = torch.zeros_like(ratios, dtype=torch.float32)
    weights[mask] = torch.where(kept[whole], values, 0).float()
    return Verdicts(weights, kept, vetoed, means)
