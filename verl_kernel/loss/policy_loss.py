# SPDX-License-Identifier: Apache-2.0
"""Makes verl's policy losses from rules about a micro-batch, and keeps them by their registered names.

The rules share ratios pi / pi_old of tokens, turns and rows, in logarithms.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

LIMIT = 20.0
"""Log-ratios are clipped to this absolute value before the exponential, as in verl's own losses."""


def within(mask: torch.Tensor, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return (B, T) tensors in at least float32, with value and gradient 0 outside the mask (B, T) bool.

    float16 overflows at e^11, far below `LIMIT`, and outside the mask verl may leave any value: 0 times inf is NaN.
    """
    return tuple(
        torch.where(mask, tensor, 0).to(torch.promote_types(tensor.dtype, torch.float32)) for tensor in tensors
    )


def log_ratio_at(level: str, log_ratio: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Give each token the log-ratio of its token, turn or row.

    Args:
        level: `token`; `turn` or `geometric`, the mean over the tokens of a turn or of a row; `sequence`, their sum
            over a row. A turn is a run of ones in the mask.
        log_ratio: (B, T) of the tokens; any values outside the mask.
        mask: (B, T) bool.

    Returns:
        (B, T), clipped at `LIMIT`; meaningless outside the mask.
    """
    if level == "token":
        return log_ratio.clamp(-LIMIT, LIMIT)
    whole = segment_sum(log_ratio, mask, level)
    if level != "sequence":
        whole = whole / segment_sum(torch.ones_like(log_ratio), mask, level).clamp_min(1)
    return whole.clamp(-LIMIT, LIMIT)


def number_segments(mask: torch.Tensor, level: str) -> tuple[torch.Tensor, int]:
    """Number the turns or rows that have tokens: (B, T) bool to (B, T) int64, and return their count.

    The number of a token outside the mask is meaningless.
    """
    if level == "turn":
        starts = mask.clone()
        starts[:, 1:] &= ~mask[:, :-1]
    else:
        starts = mask & (mask.cumsum(dim=1) == 1)
    numbers = starts.reshape(-1).cumsum(0).view_as(mask) - 1
    return numbers.clamp_min(0), int(starts.sum())


def segment_sum(values: torch.Tensor, mask: torch.Tensor, level: str) -> torch.Tensor:
    """Give each token the sum over its turn (`turn`) or its row (any other level): (B, T) to (B, T)."""
    numbers, count = number_segments(mask, "turn" if level == "turn" else "trajectory")
    inside = torch.where(mask, values, 0).reshape(-1)
    return inside.new_zeros(max(count, 1)).index_add(0, numbers.reshape(-1), inside)[numbers]


@dataclass(frozen=True)
class LossBatch:
    """A policy loss's input from verl: a micro-batch of B rows of T tokens."""

    old_log_prob: torch.Tensor
    """(B, T) log-probabilities of the policy that the trained policy is compared with; 0 outside the mask."""
    log_prob: torch.Tensor
    """(B, T) log-probabilities of the trained policy, with gradient; 0 outside the mask."""
    advantages: torch.Tensor
    """(B, T) advantages of the tokens; 0 outside the mask."""
    response_mask: torch.Tensor
    """(B, T), 1 on the tokens that enter the loss."""
    loss_agg_mode: str
    """verl's way to aggregate token losses (`loss_agg_mode`)."""
    config: Any
    """verl's actor config."""
    rollout_is_weights: torch.Tensor | None
    """(B, T) weights that verl's rollout correction gives to the losses of tokens, or None."""

    @property
    def mask(self) -> torch.Tensor:
        """`response_mask` as (B, T) bool."""
        return self.response_mask.bool()

    def node(self, name: str) -> Any:
        """Return a key of `actor_rollout_ref.actor.policy_loss`; None if it is not set."""
        return self.config.policy_loss.get(name, None)

    def total(self, matrix: torch.Tensor) -> torch.Tensor:
        """Weigh the losses of tokens (B, T) by the rollout correction, and aggregate them as verl does: a scalar."""
        from verl.trainer.ppo.core_algos import agg_loss

        mask, weights = self.mask, self.rollout_is_weights
        weighted = matrix if weights is None else matrix * within(mask, weights)[0]
        loss: torch.Tensor = agg_loss(
            loss_mat=weighted, loss_mask=mask, loss_agg_mode=self.loss_agg_mode, **self.config.global_batch_info
        )
        return loss


Rule = Callable[[LossBatch], tuple[torch.Tensor, dict[str, Any]]]
"""Maps a micro-batch to its loss and metrics."""
PolicyLoss = Callable[..., tuple[torch.Tensor, dict[str, Any]]]

LOSSES: dict[str, PolicyLoss] = {}
"""All policy losses, by name; `policy_loss` fills it."""


def policy_loss(*names: str) -> Callable[[Rule], PolicyLoss]:
    """Turn the decorated rule into a policy loss as verl calls it, and register it under `names`."""

    def register(rule: Rule) -> PolicyLoss:
        @functools.wraps(rule)
        def loss(
            old_log_prob: torch.Tensor,
            log_prob: torch.Tensor,
            advantages: torch.Tensor,
            response_mask: torch.Tensor,
            *,
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
    """Return metrics `<prefix>/*` of a micro-batch from scalars that are counts and sums.

    verl averages them over all micro-batches, including those that hold padding only, and wants the same metrics from
    each. So shares must be computed after the averaging.
    """
    # One transfer from the device.
    values = torch.stack([value.double() for value in sums.values()]).tolist()
    return {f"{prefix}/{name}": value for name, value in zip(sums, values, strict=True)}
