# SPDX-License-Identifier: Apache-2.0
"""`topr_signed`: plus or minus one, minus a constant (TOPR, arXiv 2503.14286).

    A[i, t] = R[i, t] - c,    R = 1 where G[i, t] > threshold, else -1 (or G itself, with `reward: raw`)

c weighs good answers against bad ones: of a batch with a share p of positives, the loss sees

    q = p (1 - c) / (1 + c (1 - 2 p)),    so that    c = (p - q) / (p + q - 2 p q)

gives the share q. The paper's method has c = 0; that a share of 0.1 to 0.2 is best is its finding about fixed data
sets, and `c: null` asks for it. Where most answers are right, such a c gives nearly all of the weight to bad ones.
Nothing is compared within a group, so a group of one is no special case. The other half of TOPR, a ratio cut at 1 for
negatives, is the policy loss `topr_taper`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from annotated_types import Interval

from verl_kernel.advantage.groups import TurnBatch
from verl_kernel.advantage.registry import estimator
from verl_kernel.errors import ConfigError
from verl_kernel.option_group import OptionGroup


@dataclass(frozen=True)
class ToprOptions(OptionGroup):
    """What `topr_signed` has beyond `algorithm.trloo`.

    Raises:
        ConfigError: a value is out of its range, or two contradict each other; the message names the full key.
    """

    NODE = "algorithm.topr"

    reward: Literal["sign", "raw"] = "sign"
    """R of a turn: 1 or -1 (`sign`), or its return (`raw`)."""
    threshold: Annotated[float, Interval(gt=-math.inf, lt=math.inf), "a finite number"] = 0.0
    """Returns above this are positives."""
    c: Annotated[float, Interval(gt=-math.inf, lt=math.inf), "a finite number"] | None = 0.0
    """Taken off R: 0 is the paper's plain form; null solves it for `positive_share` in every batch."""
    positive_share: Annotated[float, Interval(gt=0, lt=1), "a number between 0 and 1, neither of them"] = 0.15
    """What the loss is to see of positives, where `c` is null."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reward == "raw" and self.c is None:
            raise ConfigError(
                f"{self.NODE}.reward is raw and {self.NODE}.c is null, which is solved for rewards of 1 and -1 only: "
                f"set {self.NODE}.c to a number, or {self.NODE}.reward to sign"
            )


@estimator("topr_signed", grouped=False)
def topr_signed(batch: TurnBatch, algorithm: Mapping[str, Any]) -> torch.Tensor:
    """Return signed returns minus a constant (TOPR).

    The share of positives is taken over the turns with a token in `response_mask`, which are those that the loss sees:
    neither padding nor rejected turns influence `c`.
    """
    options = ToprOptions.from_node(algorithm.get("topr", None))
    counted = batch.counted & batch.turns.present
    positive = batch.returns > options.threshold
    rewards = batch.returns if options.reward == "raw" else torch.where(positive, 1.0, -1.0).double()
    c = options.c
    if c is None:
        trained = counted & batch.turns.touched(batch.response_mask)
        c = solve(float(positive[trained].double().mean()), options.positive_share) if trained.any() else 0.0
    return (rewards - c) * counted


def solve(share: float, target: float) -> float:
    """Return the constant that makes a `share` of positives weigh like a `target` one; 1 or -1 if a class is empty."""
    # Written so that 1 and -1 are exact: Adam would turn advantages of 1e-16 into steps of normal size.
    return (share - target) / (share * (1 - target) + target * (1 - share))
