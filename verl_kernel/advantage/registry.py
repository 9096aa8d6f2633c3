# SPDX-License-Identifier: Apache-2.0
"""Makes verl's advantage estimators from rules about turns, and keeps them by their registered names."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from verl_kernel.advantage.groups import TurnBatch, members, turn_returns
from verl_kernel.advantage.options import check_algorithm
from verl_kernel.advantage.turns import find_turns
from verl_kernel.errors import TrainingError

Rule = Callable[[TurnBatch, Mapping[str, Any]], torch.Tensor]
"""Takes a batch and verl's `algorithm` node and returns the advantages of turns: (B, K) float64, 0 without a turn."""
Estimator = Callable[..., tuple[torch.Tensor, torch.Tensor]]

ESTIMATORS: dict[str, Estimator] = {}
"""All estimators, by name; `estimator` fills it."""
GROUPED: list[str] = []
"""Names of the estimators that compare the rollouts of a prompt and so learn nothing from a single rollout."""


MOST_EMPTY = 3
"""Consecutive batches without a token in the loss after which a run ends."""


class EmptyBatches:
    """Counts consecutive batches of which the correction of mismatch, or a sampler, has left no token in the loss.

    Such steps change nothing: a run would go on to its end and learn nothing.
    """

    def __init__(self) -> None:
        self.streak = 0

    def count(self, mask: torch.Tensor) -> None:
        """Count a batch, (B, T) 1 on the tokens that enter the loss; raises TrainingError at the third empty one."""
        self.streak = 0 if bool(mask.any()) else self.streak + 1
        if self.streak >= MOST_EMPTY:
            raise TrainingError(
                f"the last {self.streak} batches had no token left in the loss: all were rejected. See "
                "rollout_corr/* and prs/* in the metrics; where algorithm.rollout_correction rejects rows, its band "
                "is too narrow for this rollout (mismatch=none turns it off)"
            )


EMPTY_BATCHES = EmptyBatches()
"""Those of this process, which is the trainer's."""


def estimator(*names: str, grouped: bool) -> Callable[[Rule], Estimator]:
    """Turn the decorated rule into an estimator as verl calls it, and register it under `names`.

    The estimator takes `token_level_rewards` (B, T), placed by `turns.place_turn_rewards`, `response_mask` (B, T), 1 on
    the tokens that enter the loss, `index` (B,), the `uid` of each row's prompt, and `config`, verl's `algorithm` node.
    Every token of a turn carries the turn's advantage, times `response_mask`: (B, T) float32. It returns them twice,
    since verl's own outcome estimators return the advantages as `returns` too. It raises ConfigError where
    `check_algorithm` or the rule does.

    Args:
        names: values of `algorithm.adv_estimator`.
        grouped: whether the rule compares the rollouts of a prompt.
    """

    def register(rule: Rule) -> Estimator:
        @functools.wraps(rule)
        def estimate(
            token_level_rewards: torch.Tensor,
            response_mask: torch.Tensor,
            index: np.ndarray,
            config: Mapping[str, Any] | None = None,
            **kwargs: Any,
        ) -> tuple[torch.Tensor, torch.Tensor]:
            tokens = _estimate_by(rule, token_level_rewards, response_mask, index, config)
            return tokens, tokens

        ESTIMATORS.update(dict.fromkeys(names, estimate))
        GROUPED.extend(names if grouped else ())
        return estimate

    return register


def _estimate_by(
    rule: Rule, rewards: torch.Tensor, mask: torch.Tensor, index: np.ndarray, config: Mapping[str, Any] | None
) -> torch.Tensor:
    options = check_algorithm(config)
    EMPTY_BATCHES.count(mask)
    with torch.no_grad():
        turns = find_turns(rewards)
        returns = turn_returns(turns, options)
        counted = members(turns, mask, options)
        advantages = rule(TurnBatch(turns, mask, index, options, returns, counted), {} if config is None else config)
        tokens = turns.spread(advantages.float(), mask)
    if options.record_dir:
        _write_call(Path(options.record_dir), rewards, mask, index, tokens)
    return tokens


def _write_call(
    folder: Path, rewards: torch.Tensor, mask: torch.Tensor, index: np.ndarray, advantages: torch.Tensor
) -> None:
    """Write the tensors of one call for audits: `<call>.npz` under the next free number, counted from 000001.

    It holds `rewards`, `mask` and `advantages` (B, T) float32, and `uid` (B,) text.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{len(list(folder.glob('*.npz'))) + 1:06d}.npz"
    columns = {"rewards": rewards, "mask": mask, "advantages": advantages}
    arrays: dict[str, Any] = {name: tensor.detach().float().cpu().numpy() for name, tensor in columns.items()}
    np.savez_compressed(path, uid=index.astype(str), **arrays)
