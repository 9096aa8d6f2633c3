# SPDX-License-Identifier: Apache-2.0
"""Accesses to one area, and the cells of the area that they touch."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from verl_kernel.env.devices.cpu.memory.access import Access, Array, Kind, active
from verl_kernel.env.devices.cpu.memory.races.shadow import Touched


class Part(NamedTuple):
    """The lanes of an access that lie in the area."""

    number: int
    access: Access
    offsets: Array
    """In bytes from the start of the area."""
    lanes: Array | None
    """Which of the active lanes they are; None for all."""

    def cells(self, unit: int) -> Array:
        """Cells that each lane touches, of `unit` bytes."""
        first, count = self.offsets // unit, self.access.itemsize // unit
        return first if count == 1 else (first[:, None] + np.arange(count)).reshape(-1)

    def stored(self, unit: int) -> tuple[Array, Array]:
        """The bytes of each cell after a store and before it."""
        access = self.access
        assert access.value is not None and access.before is not None
        after = active(np.broadcast_to(access.value, access.pointers.shape), access.mask)
        return self._bits(after, unit), self._bits(access.before, unit)

    def _bits(self, values: Array, unit: int) -> Array:
        values = values if self.lanes is None else values[self.lanes]
        return np.ascontiguousarray(values).view(f"u{unit}")


def unit_of(parts: Sequence[Part], unit: int) -> int:
    """The largest cell of at most `unit` bytes of which every access touches whole ones."""
    unit = min((part.access.itemsize for part in parts), default=unit) if parts else unit
    bits = 0
    for part in parts:
        bits |= int(np.bitwise_or.reduce(part.offsets))
    while unit > 1 and bits & (unit - 1):
        unit //= 2
    return unit


def touched(parts: Sequence[Part], kinds: Collection[Kind], unit: int) -> Touched:
    """All cells that accesses of these kinds touch, in order."""
    return _joined([(part.number, part.cells(unit)) for part in parts if part.access.kind in kinds])


def changed(parts: Sequence[Part], unit: int) -> Touched:
    """Cells of which stores change the bytes, in order."""
    found = []
    for part in parts:
        if part.access.kind is Kind.STORE:
            after, before = part.stored(unit)
            found.append((part.number, part.cells(unit)[after != before]))
    return _joined(found)


def _joined(found: Sequence[tuple[int, Array]]) -> Touched:
    if not found:
        return Touched.nothing()
    sizes = [cells.size for _, cells in found]
    numbers = np.repeat(np.array([number for number, _ in found], np.int32), sizes)
    return Touched(np.concatenate([cells for _, cells in found]), numbers)
