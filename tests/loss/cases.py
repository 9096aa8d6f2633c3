# SPDX-License-Identifier: Apache-2.0
"""Configurations and batches for losses, and one call of a loss as verl makes it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from omegaconf import DictConfig, OmegaConf
from verl.trainer.ppo.core_algos import get_policy_loss_fn
from verl.workers.config import ActorConfig

import verl_kernel.plugin  # noqa: F401  registers the losses
from tests.config.composed import composed as recipe_with
from verl_kernel.loss.config import KernelPolicyLossConfig
from verl_kernel.loss.options import PRESETS, TOPR

OURS = [*PRESETS, TOPR]
AGGREGATIONS = ["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm", "token-sum"]
SEEDS = st.integers(0, 10**6)


def composed(*overrides: str) -> DictConfig:
    """The recipe with overrides; with a `method=` it is that of the CPU, which has methods."""
    recipe = "cpu_quickstart" if any(one.startswith("method=") for one in overrides) else "kernel_trloo"
    config = recipe_with(recipe, "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1", *overrides)
    OmegaConf.set_struct(config, False)
    return config


@dataclass(frozen=True)
class Batch:
    """(B, T) each, float64; the mask is ragged, with feedback between turns."""

    log_prob: torch.Tensor
    log_ratio: torch.Tensor
    advantages: torch.Tensor
    mask: torch.Tensor


def random_batch(seed: int = 0, rows: int = 8, width: int = 9, spread: float = 0.7) -> Batch:
    """Normal log-ratios and advantages; the advantages differ from token to token."""
    generator = torch.Generator().manual_seed(seed)

    def normal() -> torch.Tensor:
        return torch.randn(rows, width, generator=generator, dtype=torch.float64)

    lengths = torch.randint(1, width + 1, (rows, 1), generator=generator)
    mask = (torch.rand(rows, width, generator=generator) < 0.8) & (torch.arange(width) < lengths)
    mask[:, 0] = True
    return Batch(-2 + 0.3 * normal(), spread * normal(), normal(), mask)


def actor(mode: str, clip: tuple[float, float] = (0.2, 0.2), dual: float = 3.0, **policy: Any) -> ActorConfig:
    return ActorConfig(
        strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, clip_ratio_low=clip[0], clip_ratio_high=clip[1],
        clip_ratio_c=dual, policy_loss=KernelPolicyLossConfig(loss_mode=mode, **policy),
    )  # fmt: skip


def call(
    mode: str, tensors: Sequence[torch.Tensor | None], mask: torch.Tensor, agg: str = "token-mean", **settings: Any
) -> tuple[torch.Tensor, torch.Tensor, dict[str, float]]:
    """Loss, its gradient by `log_prob`, and metrics; the tensors are log pi, log pi_old, advantages and verl's weights.

    `settings` are those of `actor`.
    """
    log_prob, old, advantages, weights = tensors
    log_prob = log_prob.clone().requires_grad_()
    loss, metrics = get_policy_loss_fn(mode)(
        old_log_prob=old, log_prob=log_prob, advantages=advantages, response_mask=mask, loss_agg_mode=agg,
        config=actor(mode, **settings), rollout_is_weights=weights,
    )  # fmt: skip
    (gradient,) = torch.autograd.grad(loss, log_prob)
    return loss.detach(), gradient, metrics


def evaluate(
    mode: str, batch: Batch, agg: str = "token-mean", weights: torch.Tensor | None = None, **settings: Any
) -> tuple[torch.Tensor, torch.Tensor, dict[str, float]]:
    tensors = (batch.log_prob, batch.log_prob - batch.log_ratio, batch.advantages, weights)
    return call(mode, tensors, batch.mask, agg, **settings)


def assert_same(one: torch.Tensor, two: torch.Tensor) -> None:
    torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-9)


def segments(mask: list[int], level: str) -> list[list[int]]:
    """Columns of each turn, or of the row, that the mask leaves."""
    runs: list[list[int]] = []
    for column, on in enumerate(mask):
        if on and (not runs or (level == "turn" and runs[-1][-1] != column - 1)):
            runs.append([column])
        elif on:
            runs[-1].append(column)
    return runs
