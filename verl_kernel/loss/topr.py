# SPDX-License-Identifier: Apache-2.0
"""`topr_taper`: REINFORCE in which bad answers count less, the less likely they have become (TOPR, arXiv 2503.14286).

With rho = pi / mu and clip(x, a, b) = min(max(x, a), b), both without gradient,

    loss of a token = -alpha A log pi,   alpha = clip(rho, pos_low, pos_high) where A >= 0   (1 and 1 in the paper)
                                         alpha = clip(rho, neg_low, neg_high) where A < 0    (0 and 1 in the paper)

mu is `old_log_prob`, so `algorithm.rollout_correction.bypass_mode` must be on to make it the policy that generated the
sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from verl_kernel.loss.options import TOPR, ToprLossOptions
from verl_kernel.loss.policy_loss import LossBatch, counted, log_ratio_at, policy_loss, segment_sum


@dataclass(frozen=True)
class ToprWeights:
    """The weights of a batch's tokens, and the terms that decide them."""

    alpha: torch.Tensor
    """(B, T): weight of each token, without gradient."""
    negative: torch.Tensor
    """(B, T) bool: whether the limits for negative advantages apply."""
    log_ratio: torch.Tensor
    """(B, T): log rho of the token, turn or row to which the token belongs."""


@policy_loss(TOPR)
def topr_taper(batch: LossBatch) -> tuple[torch.Tensor, dict[str, Any]]:
    """Compute tapered off-policy REINFORCE by the options of `policy_loss.topr`, with metrics `topr/*`.

    The paper's `loss_agg_mode` is seq-mean-token-mean.

    Raises:
        ConfigError: the options are bad.
    """
    options = ToprLossOptions.from_node(batch.node("topr"))
    log_ratio = (batch.log_prob - batch.old_log_prob).detach()
    weights = topr_weights(log_ratio, batch.advantages, batch.mask, options)
    loss = batch.total(-weights.alpha * batch.advantages * batch.log_prob)
    return loss, topr_metrics(weights, batch.mask, options)


def topr_weights(
    log_ratio: torch.Tensor, advantages: torch.Tensor, mask: torch.Tensor, options: ToprLossOptions
) -> ToprWeights:
    """Return the weight of each token, alpha.

    Args:
        log_ratio: (B, T) log pi / mu of the tokens, without gradient.
        advantages: (B, T).
        mask: (B, T) bool; values outside the mask have no influence.
        options: the limits.
    """
    level = log_ratio_at(options.ratio, log_ratio, mask)
    sign = advantages if options.sign == "token" else segment_sum(advantages, mask, "turn")
    rho, negative = level.exp(), sign < 0
    good = options.pos_weight * rho.clamp(options.pos_low, options.pos_high)
    bad = options.neg_weight * rho.clamp(options.neg_low, options.neg_high)
    return ToprWeights(torch.where(negative, bad, good), negative, level)


def topr_metrics(weights: ToprWeights, mask: torch.Tensor, options: ToprLossOptions) -> dict[str, float]:
    """Return metrics `topr/*` of a micro-batch, counts and sums over tokens: see `counted`."""
    negative = mask & weights.negative
    return counted(
        "topr",
        {
            "tokens": mask.sum(),
            "negative": negative.sum(),
            "negative_weight": torch.where(negative, weights.alpha, 0).sum(),
            "negative_cut": (negative & (weights.log_ratio.exp() > options.neg_high)).sum(),
            "log_ratio": torch.where(mask, weights.log_ratio, 0).sum(),
        },
    )
