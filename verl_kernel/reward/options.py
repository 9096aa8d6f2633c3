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

from verl_kernel.env import GymOptions
from verl_kernel.errors import ConfigError
from verl_kernel.option_group import OptionGroup, as_mapping, option_names, refuse_unknown
from verl_kernel.reward.profiling import ProfilingReward

_TokenId = Annotated[int, Interval(ge=0)]


Context = Literal["concat", "last", "best_window", "top_w"]


@dataclass(frozen=True)
class ConversationOptions(OptionGroup):
    """What a policy is told and shown from turn to turn, in a trainer and in a bench.

    Raises:
        ConfigError: a value is out of its range; the message names the key.
    """

    feedback: Literal["short", "full", "profile", "none"] = "short"
    """What the policy is told after a turn: `short` (a few lines), `full` (the report as JSON), `profile` (what bounds
    each kernel, and the change that would save most; give it 1600 characters) or `none`."""
    feedback_chars: Annotated[int, Interval(ge=100)] = 800
    """Longest feedback message."""
    context: Context = "concat"
    """Which earlier turns a prompt shows (`rollout.context`): all, or a few in a prompt of its own for every turn."""
    window: Annotated[int, Interval(ge=1)] = 4
    """How many, where not all."""
    total_tokens: Annotated[int, Interval(ge=1)] | None = None
    """Tokens of a trajectory, prompts and answers of all turns; once spent, no further turn begins."""
    total_seconds: Annotated[float, Interval(gt=0, lt=math.inf)] | None = None
    """Seconds of generating and judging after which no further turn of a trajectory begins."""


@dataclass(frozen=True)
class RolloutOptions(ConversationOptions):
    """How a trajectory unfolds; only a validation may have another context than `concat`, or limits of a trajectory.

    Raises:
        ConfigError: a value is out of its range; the message names `kernelgym.<key>`.
    """

    NODE = "kernelgym"

    max_turns: Annotated[int, Interval(ge=1)] = 3
    """Turns of every trajectory; a policy cannot stop earlier."""
    turn_tokens: Annotated[int, Interval(ge=1)] | None = None
    """Token budget of one turn; an even share of what is left of `data.max_response_length` when null."""
    stop_token_ids: Annotated[tuple[_TokenId, ...], "a list of token ids, as in [872, 77091]"] = ()
    """Tokens at which generation stops, besides the chat template's end of turn and the model's own."""
    cold_start: str | None = None
    """Parquet file of the conversations (column `messages`) that the model was trained on first: programs that are not
    among their answers count as novel (`kernel/novel`, docs/metrics.md). With null, novelty is not measured."""

    def refuse_training(self) -> None:
        """Check that trajectories of this kind can be trained on.

        Raises:
            ConfigError: they can only be validated with; the message names the key and the reason.
        """
        remedy = "set trainer.val_only=True and leave trainer.val_before_train on, or set"
        if self.context != "concat":
            raise ConfigError(
                f"kernelgym.context is {self.context}, but training takes a trajectory for one row, in which an answer "
                f"would follow other tokens than it was generated from: {remedy} kernelgym.context=concat"
            )
        for key in ("total_tokens", "total_seconds"):
            if (value := getattr(self, key)) is not None:
                raise ConfigError(
                    f"kernelgym.{key} is {value}, but in training every trajectory has the same number of turns, as "
                    f"late turns of cheap trajectories alone would have a baseline of their own: {remedy} it to null"
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
        if self.reward.only_this_size < 1 and not self.env.other_sizes:
            raise ConfigError(
                f"kernelgym.reward.only_this_size is {self.reward.only_this_size:g} but kernelgym.other_sizes is "
                "false, so kernels are judged at no other size: set kernelgym.other_sizes=true"
            )
        refuse_profile(self.rollout, self.env)


def refuse_profile(conversation: ConversationOptions, gym: GymOptions) -> None:
    """Check that somebody makes the profiles of `feedback: profile`.

    Raises:
        ConfigError: nobody does.
    """
    if conversation.feedback == "profile" and gym.device == "cuda" and gym.prefilter == "off":
        raise ConfigError(
            "kernelgym.feedback is 'profile' and kernelgym.device is 'cuda', but a GPU counts nothing that a profile "
            "could be made of: set kernelgym.prefilter=cpu, or another feedback"
        )


_KINDS = (RolloutOptions, GymOptions)


def known_keys(node: Any) -> dict[str, Any]:
    """Return the keys and values of the node as they stand; empty if it is null.

    Raises:
        ConfigError: it is no mapping, or holds a key that nobody reads.
    """
    names = (*(key for kind in _KINDS for key in option_names(kind)), "reward")
    plain = as_mapping("kernelgym", node, names)
    refuse_unknown("kernelgym", plain, names)
    return plain


def parse_options(node: Mapping[str, Any] | None) -> KernelGymOptions:
    """Read the `kernelgym` node of a configuration, as `verl_keys.find` returns it; None means the defaults.

    Raises:
        ConfigError: a key is unknown or a value out of range.
    """
    plain = known_keys(node)
    reward = plain.pop("reward", None)
    rollout, env = ({key: plain[key] for key in option_names(kind) if key in plain} for kind in _KINDS)
    return KernelGymOptions(RolloutOptions(**rollout), GymOptions(**env), ProfilingReward.from_node(reward))
