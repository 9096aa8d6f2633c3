# SPDX-License-Identifier: Apache-2.0
"""How often and how far a model is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Interval

from verl_kernel.reward.options import ConversationOptions


@dataclass(frozen=True)
class BenchOptions(ConversationOptions):
    """Options of a bench besides those of the gym, of the reward and of the endpoint.

    Raises:
        ConfigError: a value is out of its range; the message names `bench.<key>`.
    """

    NODE = "bench"

    samples: Annotated[int, Interval(ge=1)] = 1
    """Independent trajectories of each task."""
    turns: Annotated[int, Interval(ge=1)] = 1
    seed: Annotated[int, Interval(ge=0)] = 0
    """Each answer is asked for with a seed made of this one, task, sample and turn; the judges' inputs depend on it."""
    requests: Annotated[int, Interval(ge=1)] = 16
    """In flight at the model at a time."""
