# SPDX-License-Identifier: Apache-2.0
"""Makes verl's policy losses of rules about a micro-batch, and keeps them by the names they register under."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from verl_kernel.loss.ratios import within


@dataclass(frozen=True)
class LossBatch:
    """What verl hands to a policy loss for a micro-batch of B rows of T tokens."""

    old_log_prob: torch.Tensor
    """(B, T) log-probabilities of the policy that the one in training is compared with; 0 outside the mask."""
    log_prob: torch.Tensor
    """(B, T) log-probabilities of the policy in training, with gradient; 0 outside the mask."""
    advantages: torch.Tensor
    """(B, T); 0 outside the mask."""
    response_mask: torch.Tensor
    """(B, T), 1 on the tokens that enter the loss."""
    loss_agg_mode: str
    """verl's way to sum up."""
    config: Any
    """verl's actor config."""
    rollout_is_weights: torch.Tensor | None
    """(B, T) weights that verl's rollout correction gives to the tokens' losses, or None."""

    @property
    def mask(self) -> torch.Tensor:
        """`response_mask` as (B, T) bool."""
        return self.response_mask.bool()

    def node(self, name: str) -> Any:
        """A key of `actor_rollout_ref.actor.policy_loss`; None where it is not set."""
        return self.config.policy_loss.get(name, None)

    def total(self, matrix: torch.Tensor) -> torch.Tensor:
        """Weigh the losses of tokens (B, T) by the rollout correction, and sum them up as verl does: a scalar."""
        from verl.trainer.ppo.core_algos import agg_loss

        mask, weights = self.mask, self.rollout_is_weights
        weighted = matrix if weights is None else matrix * within(mask, weights)[0]
        loss: torch.Tensor = agg_loss(
            loss_mat=weighted, loss_mask=mask, loss_agg_mode=self.loss_agg_mode, **self.config.global_batch_info
        )
        return loss


Rule = Callable[[LossBatch], tuple[torch.Tensor, dict[str, Any]]]
"""From a micro-batch to its loss and metrics."""
PolicyLoss = Callable[..., tuple[torch.Tensor, dict[str, Any]]]

LOSSES: dict[str, PolicyLoss] = {}
"""All of them, by name; `policy_loss` fills it."""


def policy_loss(*names: str) -> Callable[[Rule], PolicyLoss]:
    """Make a policy loss, as verl calls one, of the rule that follows, and register it under `names`."""

    def register(rule: Rule) -> PolicyLoss:
        @functools.wraps(rule)
        def loss(
            old_log_prob: torch.Tensor,
            log_prob: torch.Tensor,
            advantages: torch.Tensor,
            response_mask: torch.Tensor,
            loss_agg_mode: str = "token-mean",
            config: Any = None,
            rollout_is_weights: torch.Tensor | None = None,
        ) -> tuple[torch.Tensor, dict[str, Any]]:
            old, new, clean = within(response_mask.bool(), old_log_prob, log_prob, advantages)
            return rule(LossBatch(old, new, clean, response_mask, loss_agg_mode, config, rollout_is_weights))

        LOSSES.update(dict.fromkeys(names, loss))
        return loss

    return register


def counted(prefix: str, sums: Mapping[str, torch.Tensor]) -> dict[str, float]:
    """Metrics `<prefix>/*` of a micro-batch, from scalars that are counts and sums.

    verl averages them over micro-batches of any content, padding alone included, and wants the same metrics from each:
    what is a share must be divided after that.
    """
    # One transfer from the device.
    values = torch.stack([value.double() for value in sums.values()]).tolist()
    return {f"{prefix}/{name}": value for name, value in zip(sums, values, strict=True)}
