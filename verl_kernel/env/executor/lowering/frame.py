# SPDX-License-Identifier: Apache-2.0
"""Where a warp keeps registers that outlive a piece of code."""

from __future__ import annotations

from collections.abc import Iterable

ALIVE, PLACES, FIRST = 0, 64, 192
"""Offsets: lanes that have not ended, the block that each lane waits for, the first register."""


class Frame:
    """Places of registers in a warp's frame."""

    def __init__(self) -> None:
        self.places: dict[str, int] = {}
        self._used = FIRST
        self._lent: dict[str, tuple[int, int]] = {}
        self._free: dict[tuple[int, int], list[int]] = {}

    def add(self, registers: Iterable[tuple[str, int, bool]]) -> None:
        """Give registers a place: their names, bits, and whether all lanes share them."""
        for name, bits, is_uniform in registers:
            if name not in self.places:
                self.places[name] = self._new(*_shape(bits, is_uniform))

    def lend(self, registers: Iterable[tuple[str, int, bool]]) -> None:
        """As `add`, until `take_back`; of registers that have none."""
        for name, bits, is_uniform in registers:
            if name not in self.places:
                shape = self._lent[name] = _shape(bits, is_uniform)
                free = self._free.get(shape)
                self.places[name] = free.pop() if free else self._new(*shape)

    def take_back(self, still: frozenset[str] = frozenset()) -> None:
        """Let others have the places that were lent to registers which nothing reads any more."""
        self.free(sorted(self._lent.keys() - still))

    def free(self, names: Iterable[str]) -> None:
        """Take back the places of those of some registers that have a lent one."""
        for name in [name for name in names if name in self._lent]:
            self._free.setdefault(self._lent.pop(name), []).append(self.places.pop(name))

    def _new(self, size: int, step: int) -> int:
        start = -(-self._used // step) * step
        self._used = start + size
        return start

    @property
    def bytes(self) -> int:
        """Its length, a multiple of 64."""
        return -(-self._used // 64) * 64


def _shape(bits: int, is_uniform: bool) -> tuple[int, int]:
    """Bytes of a register's place, and what it must be a multiple of."""
    size = max(8, bits) // 8
    return (8, 8) if is_uniform and size <= 8 else (size, 16) if is_uniform else (size * 32, 64)
