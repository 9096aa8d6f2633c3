# SPDX-License-Identifier: Apache-2.0
"""The `kernelgym:` node of a recipe as typed, validated options.

The node is flat but for `reward`: its keys are those of `GymOptions` and `RolloutOptions`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from annotated_types import Interval
from omegaconf import DictConfig, OmegaConf

from verl_kernel.env.options import GymOptions
from verl_kernel.errors import ConfigError
from verl_kernel.option_group import OptionGroup, option_names, refuse_unknown

_TokenId = Annotated[int, Interval(ge=0)]
_Weight = Annotated[float, Interval(ge=0, lt=math.inf)]
WEIGHTS = ("correct_weight", "speedup_weight", "coverage_weight")


@dataclass(frozen=True)
class RolloutOptions(OptionGroup):
    """How a trajectory unfolds.

    Raises:
        ConfigError: a value is out of its range; the message names `kernelgym.<key>`.
    """

    NODE = "kernelgym"

    max_turns: Annotated[int, Interval(ge=1)] = 3
    """Turns of every trajectory; a policy cannot stop earlier."""
    turn_tokens: Annotated[int, Interval(ge=1)] | None = None
    """Token budget of one turn; an even share of what is left of `data.max_response_length` when null."""
    feedback: Literal["short", "full"] = "short"
    """What the policy is told after a turn: `short` (a few lines) or `full` (the report as JSON)."""
    feedback_chars: Annotated[int, Interval(ge=100)] = 800
    """Longest feedback message."""
    stop_token_ids: Annotated[tuple[_TokenId, ...], "a list of token ids, as in [872, 77091]"] = ()
    """Tokens at which generation stops, besides the chat template's end of turn and the model's own."""


@dataclass(frozen=True)
class ProfilingReward(OptionGroup):
    """Options of the reward, read from `kernelgym.reward`.

    Raises:
        ConfigError: a value is out of its range, or two contradict each other; the message names
            `kernelgym.reward.<key>`.
    """

    NODE = "kernelgym.reward"

    variant: Literal["sum", "weighted", "milestone"] = "sum"
    """What a speedup is worth: `sum`, `weighted` or `milestone`."""
    speedup: Literal["point", "low"] = "low"
    """Which speedup: `low` (the lower end of its interval; unknown in a measured record without one) or `point`."""
    scale: _Weight = 0.5
    speedup_cap: _Weight = 3.0
    """Speedup beyond which `sum` earns nothing more."""
    margin: _Weight = 0.01
    """By how much a candidate must beat the reference for `weighted` to count it as faster."""
    correct_weight: _Weight = 1.0
    speedup_weight: _Weight = 1.0
    coverage_weight: _Weight = 1.0
    coverage: Literal["time", "number"] = "time"
    """`time` (share of device time in the candidate's own kernels) or `number` (share of launches)."""
    decoy_penalty: _Weight = 0.0
    """Taken from decoys and hacks."""
    uncompiled_penalty: _Weight = 0.0
    """Taken where there was no program, or the gate, the import or Triton refused it."""
    incorrect_penalty: _Weight = 0.0
    failure_penalty: _Weight = 0.0
    """Taken from candidates that raised, crashed, timed out or ran out of memory."""
    slow_penalty: _Weight = 0.0
    """Taken from correct candidates whose point speedup is below 1, beyond the A/A band where it was measured."""
    pay_decoys: bool = False
    """Whether a correct decoy earns what a kernel earns, for ablations; needs `kernelgym.decoys: record`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._refuse_contradictions()

    def _refuse_contradictions(self) -> None:
        for key, variant in (("speedup_cap", "sum"), ("margin", "weighted")):
            value, default = getattr(self, key), getattr(ProfilingReward, key)
            if value != default and self.variant != variant:
                raise ConfigError(
                    f"kernelgym.reward.{key} is {value} but variant is {self.variant}, which does not read it: leave "
                    f"it out, or set kernelgym.reward.variant={variant}"
                )
        if self.scale == 0 or not any(getattr(self, key) for key in WEIGHTS):
            key = "scale" if self.scale == 0 else "correct_weight"
            raise ConfigError(
                f"kernelgym.reward.{key} is 0 and nothing else can be earned: give scale and one of "
                f"{', '.join(WEIGHTS)} a value above 0"
            )


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
    kinds = (RolloutOptions, GymOptions)
    refuse_unknown("kernelgym", plain, ("reward", *(key for kind in kinds for key in option_names(kind))))
    rollout, env = ({key: plain[key] for key in option_names(kind) if key in plain} for kind in kinds)
    return KernelGymOptions(RolloutOptions(**rollout), GymOptions(**env), ProfilingReward.from_node(reward))
