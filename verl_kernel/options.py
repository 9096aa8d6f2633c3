# SPDX-License-Identifier: Apache-2.0
"""The `kernelgym:` node of a recipe as typed, validated options.

The node is flat but for `reward`: its keys are those of `GymOptions` and `RolloutOptions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl_kernel.env.options import GymOptions
from verl_kernel.errors import ConfigError
from verl_kernel.reward.profiling import ProfilingReward

FEEDBACKS = ("short", "full")
"""Forms of the message after a turn."""


@dataclass(frozen=True)
class RolloutOptions:
    """How a trajectory unfolds.

    Raises:
        ConfigError: a value is out of its range; the message names `kernelgym.<key>`.
    """

    max_turns: int = 3
    """Turns of every trajectory; a policy cannot stop earlier."""
    turn_tokens: int | None = None
    """Token budget of one turn; an even share of what is left of `data.max_response_length` when null."""
    feedback: str = "short"
    """What the policy is told after a turn: `short` (a few lines) or `full` (the report as JSON)."""
    feedback_chars: int = 800
    """Longest feedback message."""
    stop_token_ids: tuple[int, ...] = ()
    """Tokens at which generation stops, besides the chat template's end of turn and the model's own."""

    def __post_init__(self) -> None:
        if self.feedback not in FEEDBACKS:
            raise ConfigError(f"kernelgym.feedback is {self.feedback!r}; it must be one of {', '.join(FEEDBACKS)}")
        self._check_stop_tokens()
        for key, low in (("max_turns", 1), ("turn_tokens", 1), ("feedback_chars", 100)):
            value = getattr(self, key)
            if key == "turn_tokens" and value is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < low:
                raise ConfigError(f"kernelgym.{key} is {value!r}; it must be a whole number of at least {low}")

    def _check_stop_tokens(self) -> None:
        ids = self.stop_token_ids
        if not isinstance(ids, list | tuple) or not all(type(index) is int and index >= 0 for index in ids):
            raise ConfigError(
                f"kernelgym.stop_token_ids is {ids!r}; it must be a list of token ids, as in [872, 77091]"
            )
        object.__setattr__(self, "stop_token_ids", tuple(ids))


@dataclass(frozen=True)
class KernelGymOptions:
    """Everything under `kernelgym:`."""

    rollout: RolloutOptions = field(default_factory=RolloutOptions)
    env: GymOptions = field(default_factory=GymOptions)
    reward: ProfilingReward = field(default_factory=ProfilingReward)

    def __post_init__(self) -> None:
        if self.reward.pay_decoys and self.env.decoys != "record":
            raise ConfigError(
                "kernelgym.reward.pay_decoys is true but kernelgym.decoys is refuse, which leaves a decoy without a "
                "time: set kernelgym.decoys=record"
            )


def parse_options(node: DictConfig | Mapping[str, Any] | None) -> KernelGymOptions:
    """Read the `kernelgym` node of a composed configuration; a missing node means the defaults.

    Raises:
        ConfigError: a key is unknown or a value out of range.
    """
    plain = OmegaConf.to_container(node, resolve=True) if isinstance(node, DictConfig) else dict(node or {})
    assert isinstance(plain, dict)
    reward = plain.pop("reward", None) or {}
    groups = {kind: {f.name for f in fields(kind)} for kind in (RolloutOptions, GymOptions)}
    _refuse_unknown("kernelgym", plain, set().union(*groups.values()) | {"reward"})
    _refuse_unknown("kernelgym.reward", reward, {f.name for f in fields(ProfilingReward)})
    rollout, env = ({k: v for k, v in plain.items() if k in names} for names in groups.values())
    return KernelGymOptions(RolloutOptions(**rollout), GymOptions(**env), ProfilingReward(**reward))


def _refuse_unknown(prefix: str, given: Mapping[str, Any], known: set[str]) -> None:
    unknown = sorted(set(given) - known)
    if unknown:
        raise ConfigError(f"{prefix}.{unknown[0]} is not an option; known keys are {', '.join(sorted(known))}")
