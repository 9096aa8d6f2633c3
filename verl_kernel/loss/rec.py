# SPDX-License-Identifier: Apache-2.0
"""`rec_*`, `asymre_kl`, `opmd_*`: group-relative REINFORCE on off-policy data (arXiv 2509.24203).

With rho = pi / pi_old of a token, its advantage A, and without gradient M (whether it stays) and its weight w,

    loss of a token = (-w M A log pi + regulariser) / (1 + tau)

    clip one_side   M = [A >= 0 and rho <= 1 + eps_high] or [A <= 0 and rho >= 1 - eps_low]
         two_side   M = [1 - eps_low <= rho <= 1 + eps_high]
         ring       M = two_side or [A >= 0 and rho <= 1 - eps_low'] or [A <= 0 and rho >= 1 + eps_high']
         sequence   M = one_side by the geometric mean of the row's ratios

The regulariser applies to every token, including those that M removes:

    forward_kl    -coef log pi
    k2            coef (log rho)^2
    k2_sequence   coef S (2 log rho - S / n), with S the sum of log rho over the row's n tokens, without gradient: over
                  the row, value and gradient are those of coef S^2, and weights of tokens multiply their own gradients

pi_old is what verl passes as `old_log_prob`: with `algorithm.rollout_correction.bypass_mode`, the policy that generated
the sample.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import torch

from verl_kernel.loss.options import EPS, PRESETS, RecLossOptions, options_of
from verl_kernel.loss.policy_loss import LossBatch, counted, log_ratio_at, policy_loss, segment_sum, within
from verl_kernel.option_group import checked

_LEVELS = {"sequence": "geometric", "sequence_is": "geometric"}


@dataclass(frozen=True)
class RecTerms:
    """The loss of a batch's tokens, and the terms that it was computed from."""

    loss: torch.Tensor
    """Loss of each token: (B, T), with gradient; 0 outside the mask."""
    is_kept: torch.Tensor
    """M: (B, T) bool."""
    weights: torch.Tensor
    """w: (B, T)."""
    log_ratio: torch.Tensor
    """log rho: (B, T)."""


# One function serves all names: it finds its preset by `policy_loss.loss_mode`.
@policy_loss(*PRESETS)
def rec(batch: LossBatch) -> tuple[torch.Tensor, dict[str, Any]]:
    """Compute the REC loss that `policy_loss.loss_mode` names, by the options `policy_loss.rec`, with metrics `rec/*`.

    Raises:
        ConfigError: the options are bad or do not fit the loss.
    """
    options = with_eps(options_of(batch.node("loss_mode"), batch.node("rec")), batch.config)
    terms = rec_terms(batch.log_prob, batch.old_log_prob, batch.advantages, batch.mask, options)
    return batch.total(terms.loss), rec_metrics(terms, batch.advantages, batch.mask, options)


def with_eps(options: RecLossOptions, config: Any) -> RecLossOptions:
    """Return options whose eps are numbers: null is replaced by the clip range of `config`."""
    both = {}
    for side in EPS:
        eps = getattr(options, f"eps_{side}")
        both[f"eps_{side}"] = eps if eps is not None else _clip_range_of(side, config)
    return dataclasses.replace(options, **both)


def _clip_range_of(side: str, config: Any) -> Any:
    names = (f"clip_ratio_{side}", "clip_ratio")
    name = next(name for name in names if getattr(config, name) is not None)
    return checked(f"actor_rollout_ref.actor.{name}", getattr(config, name), EPS[side])


def rec_terms(
    log_prob: torch.Tensor,
    old_log_prob: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    options: RecLossOptions,
) -> RecTerms:
    """Return the loss of each token, before aggregation.

    Args:
        log_prob: (B, T), with gradient.
        old_log_prob: (B, T).
        advantages: (B, T).
        mask: (B, T) bool; values outside the mask have no influence.
        options: options whose eps are numbers.
    """
    log_prob, old_log_prob, advantages = within(mask, log_prob, old_log_prob, advantages)
    with torch.no_grad():
        log_ratio = log_prob - old_log_prob
        ratio = log_ratio_at(_LEVELS.get(options.clip, "token"), log_ratio, mask).exp()
        is_kept = stays(ratio, advantages, options)
        weights = token_weights(log_ratio, advantages, mask, options)
    policy = torch.where(is_kept, -weights * advantages * log_prob, 0)
    loss = policy + options.coef * _regulariser(log_prob, old_log_prob, mask, options.regulariser)
    return RecTerms(loss / (1 + options.tau), is_kept, weights, log_ratio)


def _regulariser(log_prob: torch.Tensor, old_log_prob: torch.Tensor, mask: torch.Tensor, kind: str) -> torch.Tensor:
    if kind == "forward_kl":
        return -log_prob
    log_ratio = log_prob - old_log_prob
    if kind == "k2":
        return log_ratio.square()
    if kind == "k2_sequence":
        whole = segment_sum(log_ratio.detach(), mask, "sequence")
        share = whole / segment_sum(torch.ones_like(whole), mask, "sequence").clamp_min(1)
        return torch.where(mask, whole * (2 * log_ratio - share), 0)
    return torch.zeros_like(log_prob)


def stays(ratio: torch.Tensor, advantages: torch.Tensor, options: RecLossOptions) -> torch.Tensor:
    """Return whether a token stays in the loss, M: (B, T) bool."""
    if options.clip == "none":
        return torch.ones_like(ratio, dtype=torch.bool)
    assert options.eps_low is not None and options.eps_high is not None, "`with_eps` fills them in"
    good, bad = advantages >= 0, advantages <= 0
    not_far_up, not_far_down = ratio <= 1 + options.eps_high, ratio >= 1 - options.eps_low
    if options.clip in ("one_side", "sequence"):
        return (good & not_far_up) | (bad & not_far_down)
    near = not_far_up & not_far_down
    if options.clip == "two_side":
        return near
    return near | (good & (ratio <= 1 - options.eps_low_prime)) | (bad & (ratio >= 1 + options.eps_high_prime))


def token_weights(
    log_ratio: torch.Tensor, advantages: torch.Tensor, mask: torch.Tensor, options: RecLossOptions
) -> torch.Tensor:
    """Return the weight of each token, w: (B, T)."""
    if options.weights == "none":
        return torch.ones_like(log_ratio)
    if options.weights == "advantage":
        # Clipped before the exponential: rewards that contain a speedup lead to large advantages.
        return (advantages / options.temperature).clamp_max(math.log(options.cap)).exp()
    return log_ratio_at(_LEVELS.get(options.weights, "token"), log_ratio, mask).exp()


def rec_metrics(
    terms: RecTerms, advantages: torch.Tensor, mask: torch.Tensor, options: RecLossOptions
) -> dict[str, float]:
    """Return metrics `rec/*` of a micro-batch, counts and sums over tokens: see `counted`."""
    limit = math.log(options.cap) if options.weights == "advantage" else math.inf
    return counted(
        "rec",
        {
            "tokens": mask.sum(),
            "clipped": (mask & ~terms.is_kept).sum(),
            "weight": torch.where(mask & terms.is_kept, terms.weights, 0).sum(),
            "capped": (mask & (advantages / options.temperature > limit)).sum(),
            "log_ratio": torch.where(mask, terms.log_ratio, 0).sum(),
        },
    )
