# SPDX-License-Identifier: Apache-2.0
"""`topr_taper`: REINFORCE whose bad answers count less the less likely they have become (TOPR, arXiv 2503.14286).

With rho = pi / mu and clip(x, a, b) = min(max(x, a), b), both without gradient,

    loss of a token = -alpha A log pi,   alpha = clip(rho, pos_low, pos_high) where A >= 0   (1 and 1 in the paper)
                                         alpha = clip(rho, neg_low, neg_high) where A < 0    (0 and 1 in the paper)

mu is `old_log_prob`, so `algorithm.rollout_correction.bypass_mode` must be on for it to be the policy that generated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from verl_kernel.loss.ratios import log_ratio_at, segment_sum, within
from verl_kernel.loss.topr_options import ToprOptions


@dataclass(frozen=True)
class ToprWeights:
    """What the tokens of a batch weigh, and why."""

    alpha: torch.Tensor
    """(B, T): weight of each token, without gradient."""
    negative: torch.Tensor
    """(B, T) bool: whether the limits of negative advantages hold."""
    log_ratio: torch.Tensor
    """(B, T): log rho of what the token belongs to."""


def topr_taper(
    old_log_prob: torch.Tensor,
    log_prob: torch.Tensor,
    advantages: torch.Tensor,
    response_mask: torch.Tensor,
    loss_agg_mode: str = "token-mean",
    config: Any = None,
    rollout_is_weights: torch.Tensor | None = None,
) -> tuple[torch.Tensor, dict[str, Any]]:
    """Tapered off-policy REINFORCE, as verl calls a policy loss.

    Args:
        old_log_prob: (B, T) log-probabilities of the policy that generated.
        log_prob: (B, T) log-probabilities of the policy in training.
        advantages: (B, T).
        response_mask: (B, T), 1 on the tokens that enter the loss.
        loss_agg_mode: verl's way to sum up; the paper's is seq-mean-token-mean.
        config: verl's actor config; `policy_loss.topr` holds the options.
        rollout_is_weights: (B, T) weights that verl's rollout correction gives to the tokens' losses, or None.

    Returns:
        The loss, and metrics `topr/*`.

    Raises:
        ConfigError: the options are bad.
    """
    from verl.trainer.ppo.core_algos import agg_loss

    mask = response_mask.bool()
    log_prob, old_log_prob, advantages = within(mask, log_prob, old_log_prob, advantages)
    options = ToprOptions.from_node(config.policy_loss.get("topr", None))
    weights = topr_weights((log_prob - old_log_prob).detach(), advantages, mask, options)
    matrix = -weights.alpha * advantages * log_prob
    if rollout_is_weights is not None:
        matrix = matrix * within(mask, rollout_is_weights)[0]
    loss = agg_loss(loss_mat=matrix, loss_mask=mask, loss_agg_mode=loss_agg_mode, **config.global_batch_info)
    return loss, topr_metrics(weights, mask, options)


def topr_weights(
    log_ratio: torch.Tensor, advantages: torch.Tensor, mask: torch.Tensor, options: ToprOptions
) -> ToprWeights:
    """Weight of each token, alpha.

    Args:
        log_ratio: (B, T) log pi / mu of the tokens, without gradient.
        advantages: (B, T).
        mask: (B, T) bool; what stands outside it has no influence.
        options: the limits.
    """
    level = log_ratio_at(options.ratio, log_ratio, mask)
    sign = advantages if options.sign == "token" else segment_sum(advantages, mask, "turn")
    rho, negative = level.exp(), sign < 0
    good = options.pos_weight * rho.clamp(options.pos_low, options.pos_high)
    bad = options.neg_weight * rho.clamp(options.neg_low, options.neg_high)
    return ToprWeights(torch.where(negative, bad, good), negative, level)


def topr_metrics(weights: ToprWeights, mask: torch.Tensor, options: ToprOptions) -> dict[str, float]:
    """Metrics `topr/*` of a micro-batch, counts and sums over tokens: see `turn_corrected.correction_metrics`."""
    negative = mask & weights.negative
    sums = {
        "tokens": mask.sum(),
        "negative": negative.sum(),
        "negative_weight": torch.where(negative, weights.alpha, 0).sum(),
        "negative_cut": (negative & (weights.log_ratio.exp() > options.neg_high)).sum(),
        "log_ratio": torch.where(mask, weights.log_ratio, 0).sum(),
    }
    # One transfer from the device.
    values = torch.stack([value.double() for value in sums.values()]).tolist()
    return {f"topr/{name}": value for name, value in zip(sums, values, strict=True)}
