# SPDX-License-Identifier: Apache-2.0
"""Options of `topr_taper`, read from `actor_rollout_ref.actor.policy_loss.topr`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Interval

from verl_kernel.errors import ConfigError
from verl_kernel.option_group import OptionGroup

NODE = "actor_rollout_ref.actor.policy_loss.topr"
TOPR = "topr_taper"
_Size = Annotated[float, Interval(ge=0, lt=math.inf)]


@dataclass(frozen=True)
class ToprOptions(OptionGroup):
    """What a token weighs by its sign and its ratio pi / mu (arXiv 2503.14286, Eq. 7 and 8).

    Raises:
        ConfigError: a value is out of its range, or a lower limit is above its upper one; the message names the key.
    """

    NODE = NODE

    ratio: Literal["sequence", "geometric", "token", "turn"] = "sequence"
    """Whose ratio: the row's, as product (the paper's) or as geometric mean (which hardly ever tapers), the token's,
    the turn's geometric mean."""
    sign: Literal["token", "turn"] = "token"
    """Whose advantage says which limits hold: the token's, or the mean over the turn (a run of ones in the mask)."""
    neg_low: _Size = 0.0
    """Smallest weight of the ratio where the advantage is negative; anything above 0 lets the policy degenerate."""
    neg_high: _Size = 1.0
    """Largest weight of the ratio where the advantage is negative."""
    pos_low: _Size = 1.0
    """Smallest weight of the ratio where the advantage is not negative."""
    pos_high: _Size = 1.0
    """Largest weight of the ratio where the advantage is not negative."""
    pos_weight: _Size = 1.0
    """Factor for all whose advantage is not negative."""
    neg_weight: _Size = 1.0
    """Factor for all whose advantage is negative; 0 learns from good answers only."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for side in ("neg", "pos"):
            low, high = getattr(self, f"{side}_low"), getattr(self, f"{side}_high")
            if low > high:
                raise ConfigError(f"{NODE}.{side}_low is {low}, above {NODE}.{side}_high, {high}: exchange them")
