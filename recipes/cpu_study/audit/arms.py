# SPDX-License-Identifier: Apache-2.0
"""The estimators that are compared, each as the package registers it, and what it makes of the turns of rollouts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from recipes.cpu_study.audit.rollouts import Group, Rollout
from verl_kernel.advantage import ESTIMATORS
from verl_kernel.advantage.turns import place_turn_rewards
from verl_kernel.reward.record import TurnRecord


def earned(turn: TurnRecord) -> float:
    """Return what a turn earned."""
    return turn.reward


def right(turn: TurnRecord) -> float:
    """Return 1 for a turn that earns, 0 for any other."""
    return float(turn.earns)


@dataclass(frozen=True)
class AuditArm:
    """An estimator with its options, as a recipe would set them."""

    title: str
    estimator: str = "trloo"
    options: Mapping[str, Any] = field(default_factory=dict)
    """Nodes of verl's `algorithm` besides `gamma`, by name."""
    rejects: bool = True
    """Whether turns that PRS rejected leave the loss."""
    reward: Callable[[TurnRecord], float] = earned
    less: str | None = None
    """Name of an arm whose advantages are taken off."""


ALL = "trloo"
POSITIVE, NEGATIVE = "positives", "negatives"
ARMS: dict[str, AuditArm] = {
    ALL: AuditArm("TRLOO"),
    "turn_grpo": AuditArm("GRPO by turn", "turn_grpo"),
    "deviation": AuditArm("TRLOO over the deviation", options={"trloo": {"normaliser": "deviation"}}),
    "no_discount": AuditArm("TRLOO, gamma 0", options={"trloo": {"gamma": 0.0}}),
    "no_prs": AuditArm("TRLOO without PRS", rejects=False),
    "right_or_wrong": AuditArm("TRLOO, reward 0 or 1", reward=right),
    "rsft": AuditArm("RSFT", "rsft"),
    "rsft_no_prs": AuditArm("RSFT without PRS", "rsft", rejects=False),
    "no_baseline": AuditArm(
        "the reward, no baseline", "topr_signed", {"topr": {"reward": "raw", "c": 0.0}, "trloo": {"gamma": 0.0}}
    ),
    POSITIVE: AuditArm("TRLOO, positives only", options={"trloo": {"negative_weight": 0.0}}),
    "quarter": AuditArm("TRLOO, negatives x 0.25", options={"trloo": {"negative_weight": 0.25}}),
    NEGATIVE: AuditArm("TRLOO, negatives only", less=POSITIVE),
}
"""What is compared, by name."""


@dataclass(frozen=True)
class AuditBatch:
    """All rollouts as an estimator sees them: B rows of at most T tokens of response and K turns."""

    rewards: torch.Tensor
    """(B, T) float32 with the marks of `advantage.turns`."""
    mask: torch.Tensor
    """(B, T) int64, 1 on the tokens that enter the loss."""
    index: np.ndarray
    """(B,), the number of each row's group."""


def batch_of(groups: Sequence[Group], reward: Callable[[Rollout, int], float], *, rejects: bool) -> AuditBatch:
    """Lay out groups for an estimator.

    Args:
        groups: the groups.
        reward: reward of a rollout's turn, by its number from 0.
        rejects: whether the turns that PRS rejected leave the mask.
    """
    rollouts = [rollout for group in groups for rollout in group]
    width = max(len(rollout.response) for rollout in rollouts)
    scores, masks = torch.zeros(len(rollouts), width), torch.zeros(len(rollouts), width, dtype=torch.int64)
    for row, rollout in enumerate(rollouts):
        length, stops = len(rollout.response), [turn.stop for turn in rollout.turns]
        scores[row, :length] = place_turn_rewards(length, stops, [reward(rollout, turn) for turn in range(len(stops))])
        masks[row, :length] = torch.tensor(rollout.mask)
        for turn, kept in zip(rollout.turns, rollout.kept, strict=True):
            if rejects and not kept:
                masks[row, turn.start : turn.stop] = 0
    return AuditBatch(scores, masks, np.repeat(np.arange(len(groups)), [len(group) for group in groups]))


def weights(groups: Sequence[Group]) -> dict[str, list[list[float]]]:
    """Return what every arm multiplies the score of each turn of each rollout by, row by row of the groups."""
    by_arm: dict[str, list[list[float]]] = {}
    for name, arm in ARMS.items():
        batch = batch_of(groups, functools.partial(_reward, arm), rejects=arm.rejects)
        own = _by_turn(groups, _advantages(arm.estimator, batch, arm.options))
        if arm.less is not None:
            own = [[a - b for a, b in zip(*rows, strict=True)] for rows in zip(own, by_arm[arm.less], strict=True)]
        by_arm[name] = own
    return by_arm


def goal(groups: Sequence[Group], turn: int) -> list[list[float]]:
    """Return the weights whose gradient is that of P(right) of a turn (-1: of a rollout's last one), as for `weights`.

    The turn's rightness is the return of all turns up to it, so leave-one-out gives the gradient without bias; nothing
    is rejected.
    """

    def reward(rollout: Rollout, number: int) -> float:
        return right(rollout.turns[number]) if number == turn % len(rollout.turns) else 0.0

    return _by_turn(groups, _advantages(ALL, batch_of(groups, reward, rejects=False), {}))


def _reward(arm: AuditArm, rollout: Rollout, turn: int) -> float:
    return arm.reward(rollout.turns[turn])


def _advantages(estimator: str, batch: AuditBatch, options: Mapping[str, Any]) -> torch.Tensor:
    config = {"adv_estimator": estimator, "gamma": 1.0, **options}
    return ESTIMATORS[estimator](batch.rewards, batch.mask, index=batch.index, config=config)[0]


def _by_turn(groups: Sequence[Group], advantages: torch.Tensor) -> list[list[float]]:
    """Return each turn's advantage: an estimator gives it to the turn's tokens, and 0 to those outside the mask."""
    rollouts = [rollout for group in groups for rollout in group]
    return [
        [_largest(own[turn.start : turn.stop]) for turn in rollout.turns]
        for rollout, own in zip(rollouts, advantages, strict=True)
    ]


def _largest(tokens: torch.Tensor) -> float:
    return float(tokens[tokens.abs().argmax()]) if len(tokens) else 0.0
