# SPDX-License-Identifier: Apache-2.0
"""What the programs of a launch ask of the memory: sectors of 32 bytes, by tensor and by program.

A program that reads a byte twice, or two that read the same one, ask L2 for it each time, and device memory as the
machine model says (`launch_steps`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

SECTOR = 32
"""Bytes that memory moves at least."""
REGISTER_BYTES = 256 << 10
"""Registers of an SM: a tile that is larger is kept in local memory, written and read."""


def span(low: int, high: int) -> int:
    """Bytes of the sectors from `low` to before `high`."""
    return (-(-high // SECTOR) - low // SECTOR) * SECTOR


def sector_bytes(active: Any, is_sorted: bool, itemsize: int) -> int:
    """Bytes of the sectors that addresses touch."""
    first, last = int(active[0]), int(active[-1])
    if is_sorted and last - first == (active.size - 1) * itemsize:
        return span(first, last + itemsize)
    sectors = active >> np.uint64(SECTOR.bit_length() - 1)
    if is_sorted:
        return (int(np.count_nonzero(sectors[1:] != sectors[:-1])) + 1) * SECTOR
    return int(np.unique(sectors).size) * SECTOR


@dataclass
class Use:
    """Reads, or writes, of one tensor by the programs of a launch.

    Where programs are sampled, each counts for those that it stands for: `weight`.
    """

    total: float = 0.0
    """Bytes of all accesses."""
    own: float = 0.0
    """The same, but what a program accesses again counts once."""
    low: int = 1 << 64
    high: int = 0
    now: float = 0.0
    """Bytes of the program that runs, and from where to where."""
    now_low: int = 1 << 64
    now_high: int = 0

    def add(self, low: int, high: int, moved: float) -> None:
        """Count an access of the program that runs."""
        self.now += moved
        self.now_low, self.now_high = min(self.now_low, low), max(self.now_high, high)

    def end_program(self, weight: float = 1.0) -> float:
        """Take the program's accesses into account; its bytes."""
        moved = self.now
        if moved:
            self.total += weight * moved
            self.own += weight * min(moved, span(self.now_low, self.now_high))
            self.low, self.high = min(self.low, self.now_low), max(self.high, self.now_high)
            self.now, self.now_low, self.now_high = 0.0, 1 << 64, 0
        return moved

    @property
    def extent(self) -> int:
        """Bytes between the first and the last one that was accessed."""
        return span(self.low, self.high) if self.total else 0

    @property
    def once(self) -> int:
        """Bytes from device memory if L2 keeps all that is accessed again."""
        return min(round(self.own), self.extent)

    @property
    def repeated(self) -> int:
        """Further bytes if L2 does not keep what a program accesses again."""
        return round(self.once * (self.total / self.own - 1.0)) if self.own else 0

    @property
    def is_shared(self) -> bool:
        """Whether programs access the same bytes."""
        return 2 * self.own > 3 * self.extent


@dataclass
class Traffic:
    """Of one launch."""

    reads: dict[int, Use] = field(default_factory=dict)
    """By number of the tensor; -1 for accesses that spread over several."""
    writes: dict[int, Use] = field(default_factory=dict)
    turns: float = 1.0
    """How many turns of its loops what runs now stands for."""
    spilled: float = 0.0
    """Bytes of tiles that do not fit into registers, by the program that runs and by all before."""
    loads: list[float] = field(default_factory=lambda: [0.0, 0.0])
    """Sums of the bytes of each load, and of their squares."""
    heaviest_bytes: float = 0.0
    """What the program that moves most moves."""
    heaviest_flops: float = 0.0
    _spilled_now: float = 0.0

    def read(self, place: int, low: int, high: int, moved: int, tile_bytes: int) -> None:
        """Count a load of a tile."""
        self.reads.setdefault(place, Use()).add(low, high, self.turns * moved)
        self.loads[0] += self.turns * moved
        self.loads[1] += self.turns * moved * moved
        if tile_bytes > REGISTER_BYTES:
            self._spilled_now += self.turns * 2 * tile_bytes

    def write(self, place: int, low: int, high: int, moved: int) -> None:
        """Count a store."""
        self.writes.setdefault(place, Use()).add(low, high, self.turns * moved)

    def end_program(self, flops: float, weight: float = 1.0) -> None:
        """A program has ended that did so many operations, and stands for `weight` programs."""
        moved = sum(use.end_program(weight) for use in (*self.reads.values(), *self.writes.values()))
        self.spilled += weight * self._spilled_now
        self._spilled_now = 0.0
        self.heaviest_bytes = max(self.heaviest_bytes, moved)
        self.heaviest_flops = max(self.heaviest_flops, flops)

    @property
    def total(self) -> float:
        """Bytes of all accesses."""
        return sum(use.total for use in (*self.reads.values(), *self.writes.values()))

    @property
    def load_bytes(self) -> int:
        """Bytes of a typical load: the mean, weighted by bytes."""
        return round(self.loads[1] / self.loads[0]) if self.loads[0] else 0

    @property
    def in_flight(self) -> int:
        """The same with the stores that go with it, for which a program does not wait."""
        read = sum(use.total for use in self.reads.values())
        return round(self.load_bytes * self.total / read) if read else 0
