# SPDX-License-Identifier: Apache-2.0
"""Batches for losses, and one call of a loss as verl makes it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from verl.trainer.ppo.core_algos import get_policy_loss_fn
from verl.workers.config import ActorConfig

import verl_kernel.plugin  # noqa: F401  registers the losses
from verl_kernel.loss.config import KernelPolicyLossConfig
from verl_kernel.loss.options import PRESETS, TOPR

OURS = [*PRESETS, TOPR]


@dataclass(frozen=True)
class Batch:
    """(B, T) each, float64; the mask is ragged, with feedback between turns."""

    log_prob: torch.Tensor
    log_ratio: torch.Tensor
    advantages: torch.Tensor
    mask: torch.Tensor

    def rows(self, part: slice) -> Batch:
        return Batch(*(getattr(self, name)[part] for name in ("log_prob", "log_ratio", "advantages", "mask")))


def random_batch(seed: int = 0, rows: int = 8, width: int = 9, spread: float = 0.7) -> Batch:
    """Normal log-ratios and advantages; the advantages differ from token to token."""
    generator = torch.Generator().manual_seed(seed)

    def normal() -> torch.Tensor:
        return torch.randn(rows, width, generator=generator, dtype=torch.float64)

    lengths = torch.randint(1, width + 1, (rows, 1), generator=generator)
    mask = (torch.rand(rows, width, generator=generator) < 0.8) & (torch.arange(width) < lengths)
    mask[:, 0] = True
    return Batch(-2 + 0.3 * normal(), spread * normal(), normal(), mask)


def constant_rows(batch: Batch) -> Batch:
    """The same batch with one advantage a row, as outcome rewards give."""
    return replace(batch, advantages=batch.advantages[:, :1].expand_as(batch.advantages))


def actor(mode: str, clip: tuple[float, float] = (0.2, 0.2), dual: float = 3.0, **policy: Any) -> ActorConfig:
    return ActorConfig(
        strategy="fsdp",
        rollout_n=1,
        ppo_micro_batch_size_per_gpu=1,
        clip_ratio_low=clip[0],
        clip_ratio_high=clip[1],
        clip_ratio_c=dual,
        policy_loss=KernelPolicyLossConfig(loss_mode=mode, **policy),
    )


def evaluate(
    mode: str, batch: Batch, agg: str = "token-mean", weights: torch.Tensor | None = None, **settings: Any
) -> tuple[torch.Tensor, torch.Tensor, dict[str, float]]:
    """Loss, its gradient by `log_prob`, and metrics; `settings` are those of `actor`."""
    log_prob = batch.log_prob.clone().requires_grad_()
    loss, metrics = get_policy_loss_fn(mode)(
        old_log_prob=batch.log_prob - batch.log_ratio,
        log_prob=log_prob,
        advantages=batch.advantages,
        response_mask=batch.mask,
        loss_agg_mode=agg,
        config=actor(mode, **settings),
        rollout_is_weights=weights,
    )
    (gradient,) = torch.autograd.grad(loss, log_prob)
    return loss.detach(), gradient, metrics


def assert_same(one: torch.Tensor, two: torch.Tensor) -> None:
    torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-9)
