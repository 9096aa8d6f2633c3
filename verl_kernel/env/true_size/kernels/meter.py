# SPDX-License-Identifier: Apache-2.0
"""Counters of a sampled launch: what a program or a turn of a loop does counts for all those that it stands for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from verl_kernel.env.devices.cpu.counting import STATE
from verl_kernel.env.devices.cpu.stores import STORES

_COUNTERS = ("bytes", "flops", "half_flops")


class Meter:
    """The weighted counters of one launch."""

    def __init__(self) -> None:
        self.weight = 1.0
        """How many programs and turns what runs now stands for."""
        self.calls = 0
        """Ops of the interpreter so far, those on many lanes more than once."""
        self.loaded: defaultdict[str, float] = defaultdict(float)
        self.stored: defaultdict[str, float] = defaultdict(float)
        """Bytes loaded and stored by parameter of the kernel."""
        self._totals = dict.fromkeys(_COUNTERS, 0.0)
        self._marks = dict.fromkeys(_COUNTERS, 0)

    @contextmanager
    def standing_for(self, weight: float) -> Iterator[None]:
        """What happens inside counts `weight` times as much."""
        outer = self.weight
        self._weigh(self.weight * weight)
        try:
            yield
        finally:
            self._weigh(outer)

    def finish(self) -> None:
        """Put the weighted counts where those of a whole launch would stand."""
        self._settle()
        STATE.end_program()
        for name, total in self._totals.items():
            setattr(STATE, name, round(total))
        STATE.half_flops = min(STATE.half_flops, STATE.flops)
        STORES.stored = STORES.computed = round(sum(self.stored.values()))

    def _weigh(self, weight: float) -> None:
        self._settle()
        self.weight = weight
        STATE.weigh(weight)

    def _settle(self) -> None:
        for name in _COUNTERS:
            count = getattr(STATE, name)
            self._totals[name] += self.weight * (count - self._marks[name])
            self._marks[name] = count
