# SPDX-License-Identifier: Apache-2.0
"""Which GPU model judges a prompt: that of the first judge it meets, and then no other.

Rollouts of one prompt are compared with each other, and times of two models cannot be. What they have in common is
the task and the step. The first judge to spare decides, so a faster model takes more prompts. Only where a model has
been without judges for `kernelgym.model_wait_s` does another take its prompts over; their later results say so.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from verl_kernel.env.lru import LRUCache
from verl_kernel.env.task import Task

CHANGED = "gpu_model_changed"
"""Key in `EvalResult.env`: the model that judged earlier rollouts of the same prompt."""
_CAPACITY = 16384
_next_serial: Callable[[], int] = itertools.count().__next__


@dataclass(eq=False)
class Pin:
    """The model of one prompt in one step."""

    model: str | None = None
    """None until its first evaluation gets a judge."""
    serial: int = field(default_factory=_next_serial)
    """Changes with the model, so that a verdict cached under it was measured on this model."""
    judged: list[str] = field(default_factory=list)
    """The models that have answered, the latest last: one may do so after the prompt has gone to another."""

    def take(self, model: str) -> None:
        """Note which model judges from now on."""
        if self.model not in (None, model):
            self.serial = _next_serial()
        self.model = model

    def note(self, model: str) -> dict[str, str]:
        """Note that a model has judged; what its result says in `env` where another one has judged the prompt."""
        others = [other for other in self.judged if other != model]
        self.judged = [*others, model]
        return {CHANGED: others[-1]} if others else {}


class Pins:
    """The pins of the prompts asked for most recently."""

    def __init__(self, capacity: int = _CAPACITY) -> None:
        self._pins: LRUCache[Pin] = LRUCache(capacity)

    def of(self, task: Task, step: int | None) -> Pin:
        """The pin of a task in a step; without a step, of the task."""
        key = f"{task.fingerprint} {step}"
        return self._pins.get(key) or self._pins.put(key, Pin())
