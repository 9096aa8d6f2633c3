# SPDX-License-Identifier: Apache-2.0
"""Which programs have touched each cell of an area, and where two of them may be in each other's way.

A cell is as many bytes as the smallest access of the area. Only what a cell's bytes do not show is left to `replay`:
which accesses atomics put in order, and which stores store what lay there or what others store.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from verl_kernel.env.devices.cpu.memory.access import Array


@dataclass(frozen=True)
class Touched:
    """Cells that accesses of one kind touch, in order, each with the number of its access."""

    cells: Array
    numbers: Array

    @classmethod
    def nothing(cls) -> Touched:
        """None."""
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int32))

    def __bool__(self) -> bool:
        return bool(self.cells.size)


class Shadow:
    """What is known of an area's cells from the beginning of a launch.

    Args:
        cells: how many there are.
    """

    def __init__(self, cells: int) -> None:
        self.size = cells
        self.conflicts = np.zeros(0, dtype=bool)
        """Where different programs do more than load, or update atomically; empty where there are none."""
        self.stored, self.loaded, self.updated, self.changed = (Latest(cells) for _ in range(4))

    @property
    def has_conflicts(self) -> bool:
        """Whether there are any."""
        return bool(self.conflicts.size)

    @property
    def is_written(self) -> bool:
        """Whether there was anything but loads."""
        return bool(self.stored) or bool(self.updated)

    def add(self, stores: Touched, updates: Touched, loads: Touched, programs: Array) -> None:
        """Add plain stores, atomics and loads; `programs` are by number of an access."""
        for touched, others in ((stores, (self.loaded, self.updated)), (updates, (self.loaded,))):
            self._compare(touched, others, programs)
        self.updated.add(updates, programs)
        self._mark(self.stored.add(stores, programs))
        self._compare(updates, (self.stored,), programs)
        self._compare(loads, (self.stored, self.updated), programs)

    def keep(self, loads: Touched, changing: Touched, programs: Array) -> None:
        """More accesses will follow, which have to be held against these loads and stores that change bytes."""
        self.loaded.add(loads, programs)
        self.changed.add(changing, programs)

    def latest(self, cells: Array) -> list[Array]:
        """Numbers of the latest stores, loads, atomics and changing stores of these cells, as `Latest.of` has them."""
        return [latest.of(cells) for latest in (self.stored, self.loaded, self.updated, self.changed)]

    def refined(self, factor: int) -> Shadow:
        """The same with each cell cut into so many."""
        finer = Shadow(self.size * factor)
        finer.conflicts = np.repeat(self.conflicts, factor)
        finer.stored, finer.loaded, finer.updated, finer.changed = (
            latest.refined(factor) for latest in (self.stored, self.loaded, self.updated, self.changed)
        )
        return finer

    def _compare(self, touched: Touched, others: tuple[Latest, ...], programs: Array) -> None:
        for latest in others:
            if touched and latest:
                self._mark(latest.of_others(touched, programs))

    def _mark(self, cells: Array) -> None:
        if cells.size and not self.has_conflicts:
            self.conflicts = np.zeros(self.size, dtype=bool)
        self.conflicts[cells] = True


class Latest:
    """By cell, the latest access of one kind and the latest by another program than that one's; empty at first.

    Args:
        cells: how many there are.
    """

    def __init__(self, cells: int) -> None:
        self._size = cells
        self._numbers = self._others = np.zeros(0, np.int32)

    def __bool__(self) -> bool:
        return bool(self._numbers.size)

    def of(self, cells: Array) -> Array:
        """Numbers of the latest accesses to some cells (first row) and of those by others (second); 0 for none."""
        rows = (self._numbers, self._others)
        return np.stack([row[cells] if self else np.zeros(cells.size, np.int32) for row in rows])

    def refined(self, factor: int) -> Latest:
        """The same with each cell cut into so many."""
        finer = Latest(self._size * factor)
        finer._numbers, finer._others = np.repeat(self._numbers, factor), np.repeat(self._others, factor)
        return finer

    def of_others(self, touched: Touched, programs: Array) -> Array:
        """Cells among the touched ones where this was done by another program than the one that touches them."""
        latest = self._numbers[touched.cells]
        foreign = np.where(programs[latest] != programs[touched.numbers], latest, self._others[touched.cells])
        cells: Array = touched.cells[foreign > 0]
        return cells

    def add(self, touched: Touched, programs: Array) -> Array:
        """Add accesses; returns the cells among them that several programs have touched."""
        cells = touched.cells
        if not touched:
            return cells
        if not self:
            self._numbers, self._others = (np.zeros(self._size, np.int32) for _ in range(2))
        before = self._numbers[cells]
        self._numbers[cells] = touched.numbers  # of a cell that is named twice the last number stays
        last = programs[self._numbers[cells]]
        for numbers in (before, touched.numbers):
            foreign = (programs[numbers] != last) & (numbers > 0)
            self._others[cells[foreign]] = numbers[foreign]
        return cells[self._others[cells] > 0]
