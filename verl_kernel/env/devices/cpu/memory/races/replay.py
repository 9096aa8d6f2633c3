# SPDX-License-Identifier: Apache-2.0
"""Goes through the accesses to cells of several programs once more, one by one, and says which of them race.

Races are: stores of two programs whose last ones leave different bytes; a load of what another program stores or
updates; a store and an atomic. None is what atomics put in order, a store that leaves the bytes as they were (against a
load), and a load of bytes that its own program has stored like the others. An access is held against the latest one of
another program: earlier ones were held against that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from verl_kernel.env.devices.cpu.memory.access import Access, Array, Kind
from verl_kernel.env.devices.cpu.memory.races.order import Order
from verl_kernel.env.devices.cpu.memory.races.shadow import Shadow

_MOST = 256
"""After so many races of an area no others are looked for."""


class Race(NamedTuple):
    """Two accesses by their numbers, the one to be named first, and a cell that both touch."""

    number: int
    other: int
    offset: int
    """Number of the cell; of its first byte, where it is reported."""


class _Slots:
    """By cell, the latest access of a kind and the latest by another program than that one's; 0 for none."""

    def __init__(self, numbers: Array, programs: Array) -> None:
        self.numbers, self.programs = numbers.copy(), programs[numbers]

    def by_others(self, at: Array, program: int) -> Array:
        """Numbers of the latest accesses by programs other than this one."""
        found: Array = np.where(self.programs[0, at] != program, self.numbers[0, at], self.numbers[1, at])
        return found

    def note(self, at: Array, program: int, number: int) -> None:
        """Another access to these cells."""
        new = at[self.programs[0, at] != program]
        for rows in (self.numbers, self.programs):
            rows[1, new] = rows[0, new]
        self.numbers[0, at], self.programs[0, at] = number, program


class Replay:
    """Some cells of one area.

    Args:
        cells: their numbers, in order.
        before: what the shadow knew of the area before the accesses that follow; None if there were none.
        programs: by number of an access, its program.
        order: of the launch.
    """

    def __init__(self, cells: Array, before: Shadow | None, programs: Array, order: Order) -> None:
        self.cells, self._order = cells, order
        self._programs = programs
        none = np.zeros((2, cells.size), np.int32)
        states = [none] * 4 if before is None else before.latest(cells)
        self._stores, self._loads, self._updates, self._changes = (_Slots(state, programs) for state in states)
        self._last, self._other_last = (np.zeros(cells.size, np.uint64) for _ in range(2))
        self._is_unordered = np.zeros(cells.size, bool)
        self._races: list[Race] = []

    def add(self, number: int, access: Access, cells: Array, stored: Sequence[Array] | None, programs: Array) -> None:
        """The next access.

        Args:
            number: of the access.
            access: what it does.
            cells: that it touches; those that are not of this replay are skipped.
            stored: the bytes of each of them after a store and before it; None for other accesses.
            programs: by number of an access, its program.
        """
        self._programs = programs
        at = np.searchsorted(self.cells, cells)
        own = self.cells[np.minimum(at, self.cells.size - 1)] == cells
        at = at[own]
        if not at.size:
            return
        if stored is not None:
            self._store(number, access.program, at, stored[0][own], stored[1][own])
        elif access.kind in (Kind.LOAD, Kind.VOLATILE):
            self._load(number, access.program, at, access.kind is Kind.LOAD)
        else:
            self._update(number, access.program, at)

    def take(self) -> list[Race]:
        """The races that were found; they are forgotten here."""
        races, self._races = self._races, []
        return races

    def end(self) -> None:
        """There are no more accesses: compare the last stores."""
        self._compare(np.arange(self.cells.size))

    def _load(self, number: int, program: int, at: Array, is_plain: bool) -> None:
        own = (self._stores.programs[0, at] == program) & (self._last[at] == self._other_last[at])
        self._hold(number, program, at, np.where(own, 0, self._changes.by_others(at, program)))
        if is_plain:
            self._hold(number, program, at, self._updates.by_others(at, program))
            self._loads.note(at, program, number)

    def _update(self, number: int, program: int, at: Array) -> None:
        for earlier in (self._loads, self._stores):
            self._hold(number, program, at, earlier.by_others(at, program), is_second=True)
        self._updates.note(at, program, number)

    def _store(self, number: int, program: int, at: Array, stored: Array, before: Array) -> None:
        self._hold(number, program, at, self._updates.by_others(at, program))
        changed = stored != before
        self._hold(number, program, at[changed], self._loads.by_others(at[changed], program), is_second=True)
        is_first = self._stores.programs[0, at] != program
        self._compare(at[is_first])
        self._is_unordered[at[is_first]] = False
        self._other_last[at[is_first]] = before[is_first]
        self._is_unordered[at] |= self._unordered(number, program, self._stores.by_others(at, program))
        self._last[at] = stored
        self._stores.note(at, program, number)
        self._changes.note(at[changed], program, number)

    def _compare(self, at: Array) -> None:
        """Programs that have ended leave behind what they stored last."""
        bad = at[self._is_unordered[at] & (self._last[at] != self._other_last[at])]
        for cell, number, other in _examples(bad, self._stores.numbers[0, bad], self._stores.numbers[1, bad]):
            self._races.append(Race(number, other, int(self.cells[cell])))

    def _hold(self, number: int, program: int, at: Array, others: Array, is_second: bool = False) -> None:
        """Hold an access against others (0 for none); it is named second where the other one is to blame."""
        bad = self._unordered(number, program, others) & (len(self._races) < _MOST)
        for cell, _, other in _examples(at[bad], np.full(int(bad.sum()), number), others[bad]):
            first, second = (other, number) if is_second else (number, other)
            self._races.append(Race(first, second, int(self.cells[cell])))

    def _unordered(self, number: int, program: int, others: Array) -> Array:
        """Which of the other accesses (by number, 0 for none) may come after this one in some schedule."""
        exists: Array = others > 0
        if self._order.is_lost:
            return np.zeros_like(exists)
        known = self._order.known(program, number)
        return exists if known is None else exists & (known[self._programs[others]] < others)


def _examples(cells: Array, numbers: Array, others: Array) -> list[tuple[int, int, int]]:
    """The first cell for each pair of accesses."""
    if not cells.size:
        return []
    pairs = np.stack([numbers, others], axis=1)
    _, first = np.unique(pairs, axis=0, return_index=True)
    return [(int(cells[place]), int(numbers[place]), int(others[place])) for place in first]
