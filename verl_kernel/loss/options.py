# SPDX-License-Identifier: Apache-2.0
"""Options of the policy losses, read from nodes under `actor_rollout_ref.actor.policy_loss`, and presets of REC."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import Interval

from verl_kernel.errors import ConfigError
from verl_kernel.option_group import OptionGroup, as_mapping, option_names

_Share = Annotated[float, Interval(ge=0, le=1)]
_Size = Annotated[float, Interval(ge=0, lt=math.inf)]
_Positive = Annotated[float, Interval(gt=0, lt=math.inf)]
MODE = "actor_rollout_ref.actor.policy_loss.loss_mode"
CUSTOM = "rec_custom"
EPS: dict[str, Any] = {"low": _Share, "high": _Size}
"""What `eps_low` and `eps_high` may be, whatever key they come from."""
PRESETS: dict[str, dict[str, Any]] = {
    "rec_one_side_is": {"clip": "one_side", "weights": "is"},
    "rec_one_side_no_is": {"clip": "one_side"},
    "rec_two_side_is": {"clip": "two_side", "weights": "is"},
    "rec_two_side_no_is": {"clip": "two_side"},
    "rec_ring": {"clip": "ring"},
    "rec_gspo_is": {"clip": "sequence", "weights": "sequence_is", "eps_low": 3e-4, "eps_high": 4e-4},
    "rec_gspo_no_is": {"clip": "sequence", "eps_low": 3e-4, "eps_high": 4e-4},
    "rec_red_weight": {"weights": "advantage"},
    "asymre_kl": {"regulariser": "forward_kl"},
    "opmd_k2": {"regulariser": "k2"},
    "opmd_k2_sequence": {"regulariser": "k2_sequence"},
    "opmd_scaled": {"tau": 1.0},
    CUSTOM: {},
}
"""What each loss fixes, and its own numbers where they are not the defaults; `rec_custom` fixes nothing."""
_CHOICES = ("clip", "weights", "regulariser")
TOPR = "topr_taper"


@dataclass(frozen=True)
class TurnCorrectionOptions(OptionGroup):
    """What leaves the loss or is weighted, by the ratio pi_train / pi_rollout of its tokens.

    Raises:
        ConfigError: a value is out of its range; the message names the full key.
    """

    NODE = "actor_rollout_ref.actor.policy_loss.turn_correction"

    level: Literal["turn", "trajectory"] = "turn"
    """What is rejected or weighted as a whole: a `turn` or a `trajectory` (Eq. 6 itself, with a veto that knows its
    sign)."""
    low: _Positive | None = None
    """Smallest geometric mean ratio that stays; null for no bound."""
    high: _Positive | None = None
    """Largest geometric mean ratio that stays; null for no bound."""
    veto: Annotated[float, Interval(gt=0, lt=1), "a number above 0 and below 1"] | None = None
    """One token with a ratio below this rejects the whole; larger ratios never do; null for no veto."""
    weights: Literal["none", "token", "geometric", "product"] = "none"
    """Weight of a token: its own ratio (`token`), or the whole's geometric mean or product of ratios."""
    cap: _Positive = 2.0
    """Weights are cut at this."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ConfigError(
                f"{self.NODE}.low is {self.low}, above {self.NODE}.high, {self.high}: no ratio would stay"
            )
        if self.low is not None and self.veto is not None and self.veto >= self.low:
            raise ConfigError(
                f"{self.NODE}.veto is {self.veto}, not below {self.NODE}.low, {self.low}: a single token would reject "
                "what the mean may keep; lower veto, or set low to null"
            )


@dataclass(frozen=True)
class RecLossOptions(OptionGroup):
    """Which tokens stay in the loss, what they weigh, and what is added (arXiv 2509.24203).

    Raises:
        ConfigError: a value is out of its range; the message names the full key.
    """

    NODE = "actor_rollout_ref.actor.policy_loss.rec"
    LEFT_OPEN = (
        "clip",
        "weights",
        "regulariser",
        "coef",
        "temperature",
        "cap",
        "eps_low",
        "eps_high",
        "eps_low_prime",
        "eps_high_prime",
        "tau",
    )

    clip: Literal["none", "one_side", "two_side", "ring", "sequence"] = "none"
    """Rule by which tokens leave the loss, by their ratio; `sequence` is `one_side` by the row's geometric mean."""
    weights: Literal["none", "is", "sequence_is", "advantage"] = "none"
    """Weight of a token: 1, its ratio, the row's geometric mean ratio, or exp(advantage / temperature)."""
    regulariser: Literal["none", "forward_kl", "k2", "k2_sequence"] = "none"
    """What is added: -coef log pi, or coef times the square of the log-ratio, of each token or (once) of the row."""
    coef: _Size = 0.1
    """Coefficient of the regulariser. The paper's number, for rewards of 0 and 1: multiply it by the largest return."""
    temperature: _Positive = 1.0
    """Of `weights: advantage`. The paper's number, for rewards of 0 and 1: multiply it by the largest return."""
    cap: _Positive = 20.0
    """`weights: advantage` are cut at this."""
    eps_low: _Share | None = None
    """Ratios below 1 - eps_low are far; null is the preset's own value, or else `actor.clip_ratio_low`."""
    eps_high: _Size | None = None
    """Ratios above 1 + eps_high are far; null is the preset's own value, or else `actor.clip_ratio_high`."""
    eps_low_prime: _Share = 0.6
    """Of `ring`: ratios below 1 - eps_low_prime stay where the advantage is positive."""
    eps_high_prime: _Size = 2.0
    """Of `ring`: ratios above 1 + eps_high_prime stay where the advantage is negative."""
    tau: _Size = 0.0
    """The loss is divided by 1 + tau."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for side in ("low", "high") if self.clip == "ring" else ():
            near, far = getattr(self, f"eps_{side}"), getattr(self, f"eps_{side}_prime")
            if near is not None and far < near:
                raise ConfigError(
                    f"{self.NODE}.eps_{side}_prime is {far} and eps_{side} is {near}: the outer edge of a ring lies "
                    f"beyond its inner one, so raise eps_{side}_prime, or lower eps_{side} "
                    f"(null is actor.clip_ratio_{side})"
                )


def options_of(mode: str, node: Mapping[str, Any] | None) -> RecLossOptions:
    """Return the options of a loss by its name; a null in the node means the default.

    Raises:
        ConfigError: the name is none of ours, or the node holds what the loss fixes otherwise or does not read.
    """
    if mode not in PRESETS:
        raise ConfigError(
            f"{MODE} is {mode}, which is no loss of the REC family: set it to one of {', '.join(PRESETS)}"
        )
    stated = {
        key: value
        for key, value in as_mapping(RecLossOptions.NODE, node, option_names(RecLossOptions)).items()
        if value is not None
    }
    fixed = [key for key in _CHOICES if key in stated and mode != CUSTOM]
    if fixed:
        raise ConfigError(
            f"{RecLossOptions.NODE}.{fixed[0]} is {stated[fixed[0]]} and {MODE} is {mode}, whose name decides "
            f"about it: remove the key, or set {MODE}={CUSTOM}"
        )
    options = RecLossOptions.from_node({**PRESETS[mode], **stated})
    for key in stated:
        if key not in _read_by(options, mode):
            raise ConfigError(
                f"{RecLossOptions.NODE}.{key} is {stated[key]} and {MODE} is {mode}, which does not read it: "
                "remove the key"
            )
    return options


def compares(options: RecLossOptions) -> bool:
    """Whether the loss reads log pi_old at all."""
    return (
        options.clip != "none"
        or options.weights in ("is", "sequence_is")
        or options.regulariser in ("k2", "k2_sequence")
    )


def _read_by(options: RecLossOptions, mode: str) -> set[str]:
    read = set(_CHOICES)
    read |= {"coef"} if options.regulariser != "none" else set()
    read |= {"temperature", "cap"} if options.weights == "advantage" else set()
    read |= {"eps_low", "eps_high"} if options.clip != "none" else set()
    read |= {"eps_low_prime", "eps_high_prime"} if options.clip == "ring" else set()
    return read | ({"tau"} if "tau" in PRESETS[mode] or mode == CUSTOM else set())


@dataclass(frozen=True)
class ToprLossOptions(OptionGroup):
    """What a token weighs by its sign and its ratio pi / mu (arXiv 2503.14286, Eq. 7 and 8).

    Raises:
        ConfigError: a value is out of its range, or a lower limit is above its upper one; the message names the key.
    """

    NODE = "actor_rollout_ref.actor.policy_loss.topr"

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
                raise ConfigError(
                    f"{self.NODE}.{side}_low is {low}, above {self.NODE}.{side}_high, {high}: exchange them"
                )
