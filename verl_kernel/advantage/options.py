# SPDX-License-Identifier: Apache-2.0
"""Options of the turn-level estimators, read from verl's `algorithm` node and its children `trloo` and `rec`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import Interval

from verl_kernel.errors import ConfigError
from verl_kernel.option_group import OptionGroup, as_mapping, checked, option_names

NODE = "algorithm.trloo"
_AGAINST_MEAN = ("trloo", "turn_grpo", "rec_group_mean")
_Gamma = Annotated[float, Interval(ge=0, le=1)]


@dataclass(frozen=True)
class TrlooOptions(OptionGroup):
    """Options of `trloo` and `turn_grpo`.

    Raises:
        ConfigError: a value is out of its range, or two contradict each other; the message names
            `algorithm.trloo.<key>`.
    """

    NODE = NODE
    LEFT_OPEN = ("gamma",)

    gamma: _Gamma = 1.0
    """Discount between turns; `algorithm.gamma` where the node says nothing, or null."""
    singleton: Literal["zero", "raw"] = "zero"
    """Advantage of a turn that is alone in its group: `zero`, or `raw` (its return, no baseline)."""
    count_rejected: bool = True
    """Whether a turn without a token in `response_mask` counts in the size and the mean of its group."""
    shaping: Literal["none", "difference", "difference_terminal"] = "none"
    """Reward of a turn: its own (`none`), minus that of the turn before (`difference`), or the same with the last one
    times 1 - gamma first (`difference_terminal`, which needs gamma below 1)."""
    baseline: Literal["turn", "padded"] = "turn"
    """Group of a turn: rollouts that reached it (`turn`), or all, those that stopped with return 0 (`padded`)."""
    credit: Literal["turn", "trajectory"] = "turn"
    """Return of a turn: its own and later rewards (`turn`), or those of its whole trajectory (`trajectory`)."""
    normaliser: Literal["none", "deviation"] = "none"
    """What `trloo` and `turn_grpo` divide an advantage by: nothing, or the standard deviation of its group, as GRPO."""
    negative_weight: Annotated[float, Interval(ge=0, lt=math.inf)] = 1.0
    """Factor of the advantages of `trloo` and `turn_grpo` that are below 0: 0 learns from what is better than its group
    alone. Wrong answers bring most of a gradient's noise (Weighted-REINFORCE, arXiv 2506.01347; arXiv 2504.11343)."""
    mask_void_turn: bool = False
    """Whether a turn that earned nothing after an earlier one earned something leaves its group and the gradient."""
    record_dir: str | None = None
    """Folder for what the estimator saw and returned, a file per step; null writes nothing."""

    def __post_init__(self) -> None:
        super().__post_init__()
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
    own = as_mapping(NODE, config.get("trloo", None), option_names(TrlooOptions))
    if own.get("gamma") is None:
        own["gamma"] = checked("algorithm.gamma", config.get("gamma", 1.0), _Gamma)
    options = TrlooOptions.from_node(own)
    _refuse_unread(options, config.get("adv_estimator", _AGAINST_MEAN[0]))
    return options


def _refuse_unread(options: TrlooOptions, estimator: str) -> None:
    """Refuse an option that only the estimators against the plain mean read."""
    for key in ("normaliser", "negative_weight"):
        value, default = getattr(options, key), getattr(TrlooOptions, key)
        if value != default and estimator not in _AGAINST_MEAN:
            raise ConfigError(
                f"{NODE}.{key} is {value}, which algorithm.adv_estimator={estimator} does not read: set it to "
                f"{default}, or choose {' or '.join(_AGAINST_MEAN)}"
            )


@dataclass(frozen=True)
class RecOptions(OptionGroup):
    """What `asymre_shift`, `opmd_baseline` and `red_drop_balance` have beyond `algorithm.trloo`.

    Raises:
        ConfigError: a value is out of its range; the message names the full key.
    """

    NODE = "algorithm.rec"

    asymre_shift: Annotated[float, Interval(gt=-math.inf, lt=math.inf), "a finite number"] = -0.1
    """Added to the mean that `asymre_shift` takes off; below 0, answers are learned from a little more than avoided.
    Above 0 bad answers count more than good ones, with which policies collapse on old data. The paper's number, for
    rewards of 0 and 1: multiply it by the largest return, as docs/algorithms/off_policy.md says."""
    opmd_baseline: Literal["mean", "logavgexp"] = "mean"
    """Baseline of `opmd_baseline`: the group's `mean`, or `logavgexp`, between the mean and the largest return."""
    opmd_tau: Annotated[float, Interval(gt=0, lt=math.inf)] = 1.0
    """Temperature of `logavgexp`: large gives the mean, small the largest return. The paper's number, for rewards of 0
    and 1: multiply it by the largest return."""
    red_drop_seed: Annotated[int, Interval(ge=0)] = 0
    """Seed of the draws of `red_drop_balance`."""
