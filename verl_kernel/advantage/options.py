# SPDX-License-Identifier: Apache-2.0
"""Options of the turn-level estimators, read from verl's `algorithm` node and its child `trloo`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from verl_kernel.errors import ConfigError

NODE = "algorithm.trloo"
CHOICES = {
    "singleton": ("zero", "raw"),
    "shaping": ("none", "difference", "difference_terminal"),
    "baseline": ("turn", "padded"),
}


@dataclass(frozen=True)
class TrlooOptions:
    """Options of `trloo` and `turn_grpo`.

    Raises:
        ConfigError: a value is out of its range, or two contradict each other; the message names
            `algorithm.trloo.<key>`.
    """

    gamma: float = 1.0
    """Discount between turns, in [0, 1]; `algorithm.gamma` where the node says nothing, or null."""
    singleton: str = "zero"
    """Advantage of a turn that is alone in its group: `zero`, or `raw` (its return, no baseline)."""
    count_rejected: bool = True
    """Whether a turn without a token in `response_mask` counts in the size and the mean of its group."""
    shaping: str = "none"
    """Reward of a turn: its own (`none`), minus the one before (`difference`), or that with the terminal correction."""
    baseline: str = "turn"
    """Group of a turn: rollouts that reached it (`turn`), or all, those that stopped with return 0 (`padded`)."""
    mask_void_turn: bool = False
    """Whether a turn that earned nothing after an earlier one earned something leaves its group and the gradient."""
    record_dir: str | None = None
    """Folder for `batch_log`, a file per call; nothing is written when null."""

    def __post_init__(self) -> None:
        if isinstance(self.gamma, bool) or not isinstance(self.gamma, int | float) or not 0 <= self.gamma <= 1:
            raise ConfigError(f"{NODE}.gamma is {self.gamma!r}; it must be a number between 0 and 1")
        for key, choices in CHOICES.items():
            value = getattr(self, key)
            if value not in choices:
                raise ConfigError(f"{NODE}.{key} is {value!r}; it must be {' or '.join(choices)}")
        for key in ("count_rejected", "mask_void_turn"):
            if not isinstance(getattr(self, key), bool):
                raise ConfigError(f"{NODE}.{key} is {getattr(self, key)!r}; it must be true or false")
        if self.shaping == "difference_terminal" and self.gamma == 1:
            raise ConfigError(
                f"{NODE}.shaping is difference_terminal and the discount is 1, which leaves no reward to learn from: "
                f"set {NODE}.gamma below 1, or {NODE}.shaping to difference or none"
            )


def check_algorithm(config: Mapping[str, Any] | None) -> TrlooOptions:
    """Validate verl's `algorithm` node for a turn-level estimator and read its options.

    Args:
        config: the node (anything with `get`); `None` means defaults.

    Raises:
        ConfigError: `use_kl_in_reward` is on, or `algorithm.trloo` holds an unknown key or a bad value.
    """
    if config is None:
        return TrlooOptions()
    if config.get("use_kl_in_reward", False):
        raise ConfigError(
            "algorithm.use_kl_in_reward is on, which overwrites the turn boundaries kept in the token-level rewards; "
            "turn it off and penalise divergence with actor_rollout_ref.actor.use_kl_loss=True (actor.use_kl_loss)"
        )
    node = config.get("trloo", None) or {}
    if not isinstance(node, Mapping):
        raise ConfigError(f"{NODE} is {node!r}; it must hold keys such as {NODE}.gamma")
    allowed = [field.name for field in fields(TrlooOptions)]
    for key in node:
        if key not in allowed:
            raise ConfigError(f"{NODE}.{key} is unknown; the keys are {', '.join(allowed)}")
    own = {key: value for key, value in node.items() if key != "gamma" or value is not None}
    return TrlooOptions(**{"gamma": config.get("gamma", 1.0), **own})
