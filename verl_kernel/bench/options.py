# SPDX-License-Identifier: Apache-2.0
"""How often and how far a model is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Interval

from verl_kernel.option_group import OptionGroup
from verl_kernel.rollout.context import Context


@dataclass(frozen=True)
class BenchOptions(OptionGroup):
    """Options of a bench besides those of the gym and of the endpoint.

    Raises:
        ConfigError: a value is out of its range; the message names `bench.<key>`.
    """

    NODE = "bench"

    samples: Annotated[int, Interval(ge=1)] = 1
    """Independent trajectories of each task."""
    turns: Annotated[int, Interval(ge=1)] = 1
    context: Context = "concat"
    """Which earlier turns a prompt shows (`rollout.context`)."""
    window: Annotated[int, Interval(ge=1)] = 4
    """How many; `concat` shows all."""
    total_tokens: Annotated[int, Interval(ge=1)] | None = None
    """Once a trajectory has spent as many, prompts included, no further turn begins."""
    total_seconds: Annotated[float, Interval(gt=0)] | None = None
    feedback: Literal["short", "full", "none"] = "short"
    feedback_chars: Annotated[int, Interval(ge=100)] = 800
    seed: Annotated[int, Interval(ge=0)] = 0
    """Each answer is asked for with a seed made of this one, task, sample and turn; the judges' inputs depend on it."""
    requests: Annotated[int, Interval(ge=1)] = 16
    """In flight at the model at a time."""
