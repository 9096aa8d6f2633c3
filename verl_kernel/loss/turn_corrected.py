# SPDX-License-Identifier: Apache-2.0
"""`turn_corrected`: verl's clipped policy loss with mismatch rejection and weights per turn or trajectory.

verl's rollout correction knows tokens and rows, and a row of ours holds all turns of a trajectory. Its seam for
anything between is the policy loss, which it hands `rollout_is_weights`: with `rollout_is: token` and a threshold
that never cuts, these are the ratios pi_train / pi_rollout themselves. The loss reads them, decides by `turn_ratios`,
and gives verl's own loss the weights that follow, 0 for what is rejected. Denominators stay those of the whole batch:
a rejected turn is one of gradient 0, and a batch of nothing but rejected turns has loss 0.
"""

from __future__ import annotations

from typing import Any

import torch

from verl_kernel.errors import ConfigError
from verl_kernel.loss.options import TurnCorrectionOptions
from verl_kernel.loss.ratios import within
from verl_kernel.loss.turn_ratios import Verdicts, judge


def turn_corrected(
    old_log_prob: torch.Tensor,
    log_prob: torch.Tensor,
    advantages: torch.Tensor,
    response_mask: torch.Tensor,
    loss_agg_mode: str = "token-mean",
    config: Any = None,
    rollout_is_weights: torch.Tensor | None = None,
) -> tuple[torch.Tensor, dict[str, Any]]:
    """Clipped policy loss of what stays, as verl calls a policy loss.

    Args:
        old_log_prob: (B, T) log-probabilities of the trainer's policy before the step.
        log_prob: (B, T) log-probabilities of the policy in training.
        advantages: (B, T).
        response_mask: (B, T), 1 on the tokens that enter the loss.
        loss_agg_mode: verl's way to sum up.
        config: verl's actor config; `policy_loss.turn_correction` holds the options.
        rollout_is_weights: (B, T) uncut token ratios pi_train / pi_rollout.

    Returns:
        The loss, and verl's metrics joined by `turn_corr/*`.

    Raises:
        ConfigError: the options are bad, or there are no ratios.
    """
    from verl.trainer.ppo.core_algos import compute_policy_loss_vanilla

    verdicts = _verdicts(rollout_is_weights, response_mask, config)
    old_log_prob, log_prob, advantages = within(response_mask.bool(), old_log_prob, log_prob, advantages)
    loss, metrics = compute_policy_loss_vanilla(
        old_log_prob=old_log_prob,
        log_prob=log_prob,
        advantages=advantages,
        response_mask=response_mask,
        loss_agg_mode=loss_agg_mode,
        config=config,
        rollout_is_weights=verdicts.weights,
    )
    return loss, metrics | correction_metrics(verdicts)


def _verdicts(ratios: torch.Tensor | None, response_mask: torch.Tensor, config: Any) -> Verdicts:
    if ratios is None:
        raise ConfigError(
            "policy_loss.loss_mode is turn_corrected and there are no ratios: set "
            "algorithm.rollout_correction.rollout_is to token (as mismatch=turn_mrs does)"
        )
    options = TurnCorrectionOptions.from_node(config.policy_loss.get("turn_correction", None))
    with torch.no_grad():
        return judge(ratios, response_mask.bool(), options)


def correction_metrics(verdicts: Verdicts) -> dict[str, float]:
    """Metrics `turn_corr/*` of a micro-batch, counts and sums.

    verl averages them over micro-batches of any content, padding alone included, and wants the same metrics from each:
    what is a share must be divided after that.
    """
    sums = {
        "judged": torch.ones_like(verdicts.kept).sum(),
        "rejected": (~verdicts.kept).sum(),
        "vetoed": verdicts.vetoed.sum(),
        "log_ratio": verdicts.log_ratio.sum(),
        "tokens": verdicts.weights.count_nonzero(),
        "weight": verdicts.weights.sum(),
    }
    # One transfer from the device.
    values = torch.stack([value.double() for value in sums.values()]).tolist()
    return {f"turn_corr/{name}": value for name, value in zip(sums, values, strict=True)}
