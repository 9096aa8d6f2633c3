# SPDX-License-Identifier: Apache-2.0
"""`turn_corrected`: verl's clipped policy loss with mismatch rejection and weights per turn or trajectory.

verl's rollout correction works on tokens and rows, but a row here holds all turns of a trajectory. Turns can be handled
only in the policy loss, which gets `rollout_is_weights`: with `rollout_is: token` and a threshold that never clips,
these are the ratios pi_train / pi_rollout themselves. The loss reads them, decides by `judge`, and gives verl's own
loss the resulting weights, 0 for rejected segments. Denominators stay those of the whole batch: a rejected turn has
gradient 0, and a batch that holds only rejected turns has loss 0.

Within `response_mask`, a run of ones is a turn: feedback separates two turns, and rejection removes whole turns. For
the tokens of a turn (or of a trajectory), with r their ratios (Dr. Kernel, Eq. 6, per turn),

    w = exp(mean log r);    it stays where low <= w <= high and no r is below `veto`
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from verl_kernel.errors import ConfigError
from verl_kernel.loss.options import TurnCorrectionOptions
from verl_kernel.loss.policy_loss import LossBatch, counted, number_segments, policy_loss


@dataclass(frozen=True)
class Verdicts:
    """The decisions on the M segments (turns or trajectories) of a batch."""

    weights: torch.Tensor
    """(B, T) float32: weight of each token in the loss; 0 where it is masked or rejected."""
    is_kept: torch.Tensor
    """(M,) bool: whether the segment is kept."""
    vetoed: torch.Tensor
    """(M,) bool: whether a ratio of the segment is below `veto`."""
    log_ratio: torch.Tensor
    """(M,) float64: log w."""


@policy_loss("turn_corrected")
def turn_corrected(batch: LossBatch) -> tuple[torch.Tensor, dict[str, Any]]:
    """Compute verl's clipped policy loss of what `policy_loss.turn_correction` keeps; adds metrics `turn_corr/*`.

    Raises:
        ConfigError: the options are bad, or there are no ratios.
    """
    from verl.trainer.ppo.core_algos import compute_policy_loss_vanilla

    verdicts = _verdicts(batch)
    loss, metrics = compute_policy_loss_vanilla(
        old_log_prob=batch.old_log_prob,
        log_prob=batch.log_prob,
        advantages=batch.advantages,
        response_mask=batch.response_mask,
        loss_agg_mode=batch.loss_agg_mode,
        config=batch.config,
        rollout_is_weights=verdicts.weights,
    )
    return loss, metrics | correction_metrics(verdicts)


def _verdicts(batch: LossBatch) -> Verdicts:
    if batch.rollout_is_weights is None:
        raise ConfigError(
            "policy_loss.loss_mode is turn_corrected and there are no ratios: set "
            "algorithm.rollout_correction.rollout_is to token (as mismatch=turn_mrs does)"
        )
    options = TurnCorrectionOptions.from_node(batch.node("turn_correction"))
    with torch.no_grad():
        return judge(batch.rollout_is_weights, batch.mask, options)


def judge(ratios: torch.Tensor, mask: torch.Tensor, options: TurnCorrectionOptions) -> Verdicts:
    """Weigh or reject every turn or trajectory.

    Args:
        ratios: (B, T) pi_train / pi_rollout of the tokens; any values outside the mask.
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
    is_kept = (means >= low) & (means <= high) & ~vetoed
    segments = {"token": logs, "geometric": means[whole], "product": sums[whole]}.get(options.weights)
    # Clipped before the exponential: products over long turns overflow.
    values = torch.ones_like(logs) if segments is None else segments.clamp_max(math.log(options.cap)).exp()
    weights = torch.zeros_like(ratios, dtype=torch.float32)
    weights[mask] = torch.where(is_kept[whole], values, 0).float()
    return Verdicts(weights, is_kept, vetoed, means)


def correction_metrics(verdicts: Verdicts) -> dict[str, float]:
    """Return metrics `turn_corr/*` of a micro-batch, counts and sums: see `counted`."""
    return counted(
        "turn_corr",
        {
            "judged": torch.ones_like(verdicts.is_kept).sum(),
            "rejected": (~verdicts.is_kept).sum(),
            "vetoed": verdicts.vetoed.sum(),
            "log_ratio": verdicts.log_ratio.sum(),
            "tokens": verdicts.weights.count_nonzero(),
            "weight": verdicts.weights.sum(),
        },
    )
