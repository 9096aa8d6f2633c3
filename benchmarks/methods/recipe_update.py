# SPDX-License-Identifier: Apache-2.0
"""One update as the composed recipe makes it, with estimator and policy loss from verl's registries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from hydra import compose, initialize_config_module
from omegaconf import DictConfig
from quickstart_play import Prompt, Rollouts, token_log_probs
from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY, get_policy_loss_fn
from verl.utils.config import omega_conf_to_dataclass

import verl_kernel.plugin  # noqa: F401  registers estimators and losses
from verl_kernel.advantage.turns import place_turn_rewards

MICRO = 16
"""Rows of a micro-batch, as in `cpu_quickstart`."""


def composed(overrides: Sequence[str]) -> DictConfig:
    """`cpu_quickstart` with overrides."""
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("cpu_quickstart", overrides=list(overrides))


class Learner:
    """A model with its optimizer, and the recipe that says how a batch becomes an update."""

    def __init__(self, model: Any, recipe: DictConfig) -> None:
        self.model, self.recipe = model, recipe
        self.actor = omega_conf_to_dataclass(recipe.actor_rollout_ref.actor)
        optim = recipe.actor_rollout_ref.actor.optim
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=optim.lr, betas=tuple(optim.betas), weight_decay=optim.weight_decay
        )
        correction = recipe.algorithm.rollout_correction
        self.bypass = bool(correction.get("bypass_mode"))
        self.cut = float(correction.rollout_is_threshold) if correction.get("rollout_is") == "token" else None

    def advantages(self, rollouts: Rollouts, rewards: torch.Tensor, groups: Sequence[str]) -> torch.Tensor:
        """(B, T) by the recipe's estimator, for one turn per row."""
        lengths = rollouts.mask.sum(1).tolist()
        width = rollouts.mask.shape[1]
        placed = [
            place_turn_rewards(width, [length], [reward])
            for length, reward in zip(lengths, rewards.tolist(), strict=True)
        ]
        estimator = ADV_ESTIMATOR_REGISTRY[self.recipe.algorithm.adv_estimator]
        return estimator(
            token_level_rewards=torch.stack(placed),
            response_mask=rollouts.mask.long(),
            index=np.array(groups, dtype=object),
            config=self.recipe.algorithm,
        )[0]

    def update(self, rollouts: Rollouts, advantages: torch.Tensor, size: int | None = None) -> dict[str, float]:
        """One optimizer step on all rows; returns what to look at. The loss is divided by `size` rows, else by all.

        The log-probabilities of the policy before the step are those of the step's own forward pass: it is one update.
        """
        self.actor.global_batch_info.update(
            dp_size=1,
            batch_num_tokens=int(rollouts.mask.sum()),
            global_batch_size=size or len(rollouts.prompts),
            loss_scale_factor=self.actor.loss_scale_factor,
        )
        lengths = [len(prompt.ids) for prompt in rollouts.prompts] + rollouts.mask.sum(1).numpy()
        order = lengths.argsort(kind="stable").tolist()
        self.optimizer.zero_grad()
        gaps = [self._accumulate(rollouts, advantages, order[i : i + MICRO]) for i in range(0, len(order), MICRO)]
        limit = self.recipe.actor_rollout_ref.actor.optim.clip_grad
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), limit)
        self.optimizer.step()
        return {"grad_norm": float(norm), "log_ratio": max(gaps)}

    def _accumulate(self, rollouts: Rollouts, advantages: torch.Tensor, rows: list[int]) -> float:
        """Add the gradient of some rows; returns the largest mean log-ratio of a row to what sampled it."""
        now, mask, behaviour = (
            token_log_probs(self.model, rollouts, rows),
            rollouts.mask[rows],
            rollouts.log_probs[rows],
        )
        before = now.detach()
        weights = None if self.cut is None else (before - behaviour).exp().clamp_max(self.cut)
        loss, _ = get_policy_loss_fn(self.actor.policy_loss.get("loss_mode", "vanilla"))(
            old_log_prob=behaviour if self.bypass else before,
            log_prob=now,
            advantages=advantages[rows],
            response_mask=mask,
            loss_agg_mode=self.actor.loss_agg_mode,
            config=self.actor,
            rollout_is_weights=weights,
        )
        loss.backward()
        return float((((before - behaviour) * mask).sum(1) / mask.sum(1)).abs().max())


def repeated(prompts: Sequence[Prompt], n: int) -> tuple[list[Prompt], list[str]]:
    """Every prompt n times, and the group of each row."""
    rows = [prompt for prompt in prompts for _ in range(n)]
    return rows, [f"{number}" for number in range(len(prompts)) for _ in range(n)]
