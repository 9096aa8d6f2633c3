# SPDX-License-Identifier: Apache-2.0
"""Which stage an evaluation is in, and the seconds of each."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from verl_kernel.env.devices.base import DeviceBackend

STAGES = ("wait", "static", "load", "correctness", "ablation", "compile", "exit", "true_size", "clock")


class Stages:
    """Times the stages of one evaluation, not counting the seconds spent waiting for other judges."""

    def __init__(self, device: DeviceBackend) -> None:
        self._device = device
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self.current = ""
        """The innermost stage that has begun and not ended."""

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """What happens inside belongs to the stage `name`, and not to the one around it."""
        outer, self.current, begun = self.current, name, self._now()
        try:
            yield
        finally:
            passed = self._now() - begun
            self._seconds[name] += passed
            if outer:
                self._seconds[outer] -= passed
            self.current = outer

    def seconds(self) -> dict[str, float]:
        """By stage, in order; `wait` is the time spent waiting for other judges."""
        waited_s = self._device.waited_s
        known = {**self._seconds, **({"wait": waited_s} if waited_s else {})}
        return {name: known[name] for name in STAGES if name in known}

    def _now(self) -> float:
        return time.perf_counter() - self._device.waited_s
