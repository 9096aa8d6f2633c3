# SPDX-License-Identifier: Apache-2.0
"""Constants of the machine model fitted to times of programs, from a start that knows none of the committed values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from statistics import fmean

from benchmarks.clock.references import Published, forward_events
from verl_kernel.env.machine.constants import CONSTANTS
from verl_kernel.env.machine.machine import MachineModel
from verl_kernel.env.machine.price import time_ms
from verl_kernel.env.trace import TraceEvent

_INSTRUCTIONS = ("window_output", "window_element", "tap_output", "tap_element")
RECORDED = (*_INSTRUCTIONS, "op_host_us", "product_host_us", "convolution_host_us", "triton_host_us", "program_ns")
"""Constants that enter when a forward is recorded; all others enter when its events are priced."""
START = {"share": 0.5, "wait": 1000.0, "instructions": 50.0}
_FIRST_STEP, _LAST_STEP = 1.5, 1.004
_MOVES = 0.01
"""Relative change of a program's time below which a constant does not move it."""
_PROBE = 1.2


def fitted_names() -> list[str]:
    """The constants whose source is `fitted`, to level 1."""
    return [name for name, one in CONSTANTS.items() if one.source.startswith("fitted") and "level 3" not in one.source]


def starting_point(names: Sequence[str]) -> dict[str, float]:
    """One value for all shares, one for waits, one for instructions."""
    return {name: START[_kind(name)] for name in names}


def _kind(name: str) -> str:
    if name.endswith("_ns"):
        return "wait"
    return "instructions" if name in _INSTRUCTIONS else "share"


@contextmanager
def using(values: Mapping[str, float]) -> Iterator[None]:
    """Price with these values of constants, and with the committed ones again afterwards."""
    committed = dict(CONSTANTS)
    CONSTANTS.update({name: replace(committed[name], value=value) for name, value in values.items()})
    try:
        yield
    finally:
        CONSTANTS.update(committed)


class Clock:
    """The model's times of programs under any values of its constants.

    Args:
        programs: what is timed.
        machine: where.
        record: gives the events of a program; it is asked again only where a constant of `RECORDED` enters them.
    """

    def __init__(
        self,
        programs: Sequence[Published],
        machine: MachineModel,
        record: Callable[[Published], list[TraceEvent]] = lambda program: forward_events(program.path),
    ) -> None:
        """Record every program, and find out which constants enter its record."""
        self.programs = programs
        self._machine, self._record = machine, record
        self._enter = [self._entering(program) for program in programs]
        self._events: dict[tuple[int, tuple[float, ...]], list[TraceEvent]] = {}

    def times(self, values: Mapping[str, float]) -> list[float]:
        """Milliseconds of every program."""
        with using(values):
            return [time_ms(self._recorded(place), self._machine) for place in range(len(self.programs))]

    def moved(self, name: str, values: Mapping[str, float]) -> int:
        """How many programs a change of a constant by 20 % moves by more than 1 %."""
        before = self.times(values)
        ways = [self.times({**values, name: values[name] * factor}) for factor in (_PROBE, 1 / _PROBE)]
        return sum(
            any(abs(way[place] / time - 1) > _MOVES for way in ways) for place, time in enumerate(before) if time
        )

    def _recorded(self, place: int) -> list[TraceEvent]:
        key = place, tuple(CONSTANTS[name].value for name in self._enter[place])
        if key not in self._events:
            self._events[key] = self._record(self.programs[place])
        return self._events[key]

    def _entering(self, program: Published) -> list[str]:
        doubled = {name: 2 * CONSTANTS[name].value for name in RECORDED}
        events = self._record(program)
        with using(doubled):
            if self._record(program) == events:
                return []
        return [name for name in RECORDED if self._changes(program, events, {name: doubled[name]})]

    def _changes(self, program: Published, events: list[TraceEvent], values: Mapping[str, float]) -> bool:
        with using(values):
            return self._record(program) != events


def loss(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Mean square of the logarithm of predicted over published time."""
    return fmean(math.log(mine / other) ** 2 for mine, other in zip(ours, theirs, strict=True))


def fit(clock: Clock, names: Sequence[str]) -> dict[str, float]:
    """Values of constants with the least `loss` on the clock's programs.

    One constant after the other is made larger or smaller by a factor as long as that helps; when nothing helps, the
    factor shrinks, from 1.5 to 1.004. Shares stay at or below 1. The search starts from `starting_point` and reads no
    committed value of these constants.
    """
    theirs = [program.ms for program in clock.programs]
    values, factor = starting_point(names), _FIRST_STEP
    best = loss(clock.times(values), theirs)
    while factor > _LAST_STEP:
        before = best
        for name in names:
            for way in (factor, 1 / factor):
                best, values = _better(clock, theirs, (best, values), (name, way))
        if best == before:
            factor = math.sqrt(factor)
    return values


def _better(
    clock: Clock, theirs: Sequence[float], found: tuple[float, dict[str, float]], move: tuple[str, float]
) -> tuple[float, dict[str, float]]:
    """The loss and the values after a move, or those before it where it does not help."""
    name, way = move
    changed = {**found[1], name: found[1][name] * way}
    if _kind(name) == "share" and changed[name] > 1.0:
        return found
    reached = loss(clock.times(changed), theirs)
    return (reached, changed) if reached < found[0] else found
