# SPDX-License-Identifier: Apache-2.0
"""What one launch does to one area: bytes that are read before anyone wrote them, and races."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from verl_kernel.env.devices.cpu.memory.access import Array, Kind
from verl_kernel.env.devices.cpu.memory.areas import Area
from verl_kernel.env.devices.cpu.memory.past import Past
from verl_kernel.env.devices.cpu.memory.races.order import Order
from verl_kernel.env.devices.cpu.memory.races.parts import Part, changed, touched, unit_of
from verl_kernel.env.devices.cpu.memory.races.replay import Race, Replay
from verl_kernel.env.devices.cpu.memory.races.shadow import Shadow, Touched

LOADS = (Kind.LOAD, Kind.VOLATILE)
_UPDATES = (Kind.ATOMIC, Kind.EXCHANGE)
_WIDEST = 8
_MOST_CELLS = 1 << 25
"""Areas of more cells are not checked for races: the shadow would take more memory than a program is granted."""
_NEVER = np.iinfo(np.int32).max


class Unwritten(NamedTuple):
    """An access that reads bytes which nobody wrote, and the first of them, from the start of the area."""

    number: int
    offset: int


class AreaLog:
    """The accesses of one launch to one area."""

    def __init__(self, area: Area, past: Past, order: Order) -> None:
        self.area = area
        self._past, self._order = past, order
        self._unit = 0
        self._shadow = Shadow(0)
        self._replays: list[Replay] = []

    @property
    def is_only_read(self) -> bool:
        """Whether nothing here can be wrong as long as there are no accesses but loads."""
        return self.area.allocation is None and not self._shadow.is_written

    def look_through(self, parts: Sequence[Part], is_last: bool) -> Iterator[Unwritten | Race]:
        """Add accesses, in order, and say what is wrong with them.

        Args:
            parts: the accesses.
            is_last: whether the launch has ended.
        """
        before = self._refine(parts) if parts else None
        if parts and self.area.allocation is not None:
            yield from self._unwritten(parts)
        if parts and self._shadow.size <= _MOST_CELLS:
            kinds = ((Kind.STORE,), _UPDATES, LOADS)
            stores, updates, loads = (touched(parts, kind, self._unit) for kind in kinds)
            self._shadow.add(stores, updates, loads, self._past.programs())
            self._replay(parts, before)
            if not is_last:
                self._shadow.keep(loads, changed(parts, self._unit), self._past.programs())
        for replay in self._replays:
            if is_last:
                replay.end()
            yield from (race._replace(offset=race.offset * self._unit) for race in replay.take())

    def _refine(self, parts: Sequence[Part]) -> Shadow | None:
        """Make cells small enough; returns a copy of what was known before these accesses, if there were others."""
        unit = unit_of(parts, self._unit or _WIDEST)
        if not self._unit:
            self._unit, self._shadow = unit, Shadow((self.area.end - self.area.start) // unit + 1)
            return None
        before = self._shadow.refined(self._unit // unit)
        if unit < self._unit:
            self._unit, self._shadow, self._replays = unit, self._shadow.refined(self._unit // unit), []
        return before

    def _replay(self, parts: Sequence[Part], before: Shadow | None) -> None:
        if not self._shadow.has_conflicts:
            return
        conflicts = self._shadow.conflicts.copy()
        for replay in self._replays:
            conflicts[replay.cells] = False
        if (cells := np.flatnonzero(conflicts)).size:
            self._replays.append(Replay(cells, before, self._past.programs(), self._order))
        for part in parts:
            self._replay_part(part)

    def _replay_part(self, part: Part) -> None:
        cells = part.cells(self._unit)
        concerned = self._shadow.conflicts[cells]
        if not concerned.any():
            return
        stored = [bits[concerned] for bits in part.stored(self._unit)] if part.access.kind is Kind.STORE else None
        for replay in self._replays:
            replay.add(part.number, part.access, cells[concerned], stored, self._past.programs())

    def _unwritten(self, parts: Sequence[Part]) -> Iterator[Unwritten]:
        allocation, unit = self.area.allocation, self._unit
        assert allocation is not None
        writes = touched(parts, (Kind.STORE, *_UPDATES), unit)
        reads = touched(parts, (*LOADS, Kind.ATOMIC), unit)
        bad = ~allocation.holds(reads.cells, unit)
        if bad.any():
            cells, numbers = reads.cells[bad], reads.numbers[bad]
            early = _first(writes, cells) >= numbers
            found, places = np.unique(numbers[early], return_index=True)
            for number, cell in zip(found, cells[early][places], strict=True):
                yield Unwritten(int(number), int(cell) * unit)
        allocation.mark(writes.cells, unit)


def _first(writes: Touched, cells: Array) -> Array:
    """Number of the first write to each of these cells."""
    if not writes:
        return np.full(cells.size, _NEVER, np.int32)
    written, first = np.unique(writes.cells, return_index=True)
    at = np.minimum(np.searchsorted(written, cells), written.size - 1)
    return np.where(written[at] == cells, writes.numbers[first[at]], _NEVER)
