# SPDX-License-Identifier: Apache-2.0
"""Options of `turn_corrected`, read from `actor_rollout_ref.actor.policy_loss.turn_correction`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from verl_kernel.errors import ConfigError

NODE = "actor_rollout_ref.actor.policy_loss.turn_correction"
CHOICES = {"level": ("turn", "trajectory"), "weights": ("none", "token", "geometric", "product")}


@dataclass(frozen=True)
class TurnCorrectionOptions:
    """What leaves the loss or is weighted, by the ratio pi_train / pi_rollout of its tokens.

    Raises:
        ConfigError: a value is out of its range; the message names the full key.
    """

    level: str = "turn"
    """What is rejected or weighted as a whole: a `turn` or a `trajectory`."""
    low: float | None = None
    """Smallest geometric mean ratio that stays; null for no bound."""
    high: float | None = None
    """Largest geometric mean ratio that stays; null for no bound."""
    veto: float | None = None
    """One token with a ratio below this rejects the whole; larger ratios never do; null for no veto."""
    weights: str = "none"
    """Weight of a token: its own ratio (`token`), or the whole's geometric mean or product of ratios."""
    cap: float = 2.0
    """Weights are cut at this."""

    def __post_init__(self) -> None:
        for key, choices in CHOICES.items():
            if getattr(self, key) not in choices:
                raise ConfigError(f"{NODE}.{key} is {getattr(self, key)!r}; it must be one of {', '.join(choices)}")
        for key in ("low", "high", "veto", "cap"):
            value = getattr(self, key)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not (number and 0 < value < float("inf")) and not (value is None and key != "cap"):
                raise ConfigError(f"{NODE}.{key} is {value!r}; it must be a positive number")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ConfigError(f"{NODE}.low is {self.low}, above {NODE}.high, {self.high}: no ratio would stay")

    @classmethod
    def from_node(cls, node: Mapping[str, Any] | None) -> TurnCorrectionOptions:
        """Read the node, refusing keys it does not know."""
        allowed = [field.name for field in fields(cls)]
        for key in node or {}:
            if key not in allowed:
                raise ConfigError(f"{NODE}.{key} is unknown; the keys are {', '.join(allowed)}")
        return cls(**dict(node or {}))
