# SPDX-License-Identifier: Apache-2.0
"""Options of `turn_corrected`, read from `actor_rollout_ref.actor.policy_loss.turn_correction`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Interval

from verl_kernel.errors import ConfigError
from verl_kernel.option_group import OptionGroup

NODE = "actor_rollout_ref.actor.policy_loss.turn_correction"
_Ratio = Annotated[float, Interval(gt=0, lt=math.inf)]


@dataclass(frozen=True)
class TurnCorrectionOptions(OptionGroup):
    """What leaves the loss or is weighted, by the ratio pi_train / pi_rollout of its tokens.

    Raises:
        ConfigError: a value is out of its range; the message names the full key.
    """

    NODE = NODE

    level: Literal["turn", "trajectory"] = "turn"
    """What is rejected or weighted as a whole: a `turn` or a `trajectory` (Eq. 6 itself, with a veto that knows its
    sign)."""
    low: _Ratio | None = None
    """Smallest geometric mean ratio that stays; null for no bound."""
    high: _Ratio | None = None
    """Largest geometric mean ratio that stays; null for no bound."""
    veto: Annotated[float, Interval(gt=0, lt=1), "a number above 0 and below 1"] | None = None
    """One token with a ratio below this rejects the whole; larger ratios never do; null for no veto."""
    weights: Literal["none", "token", "geometric", "product"] = "none"
    """Weight of a token: its own ratio (`token`), or the whole's geometric mean or product of ratios."""
    cap: _Ratio = 2.0
    """Weights are cut at this."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ConfigError(f"{NODE}.low is {self.low}, above {NODE}.high, {self.high}: no ratio would stay")
        if self.low is not None and self.veto is not None and self.veto >= self.low:
            raise ConfigError(
                f"{NODE}.veto is {self.veto}, not below {NODE}.low, {self.low}: a single token would reject what the "
                "mean may keep; lower veto, or set low to null"
            )
