# SPDX-License-Identifier: Apache-2.0
"""Where a warp keeps its registers while it waits at a barrier, or while its lanes are at several places."""

from __future__ import annotations

from collections.abc import Iterable

ALIVE, PLACES, FIRST = 0, 64, 192
"""Offsets: lanes that have not ended, the block that each lane waits for, the first register."""


class Frame:
    """Places of registers in a warp's frame."""

    def __init__(self) -> None:
        self.places: dict[str, int] = {}
        self._used = FIRST

    def add(self, registers: Iterable[tuple[str, int, bool]]) -> None:
        """Give registers a place: their names, bits, and whether all lanes share them."""
        for name, bits, is_uniform in registers:
            if name not in self.places:
                size = max(8, bits) // 8 * (1 if is_uniform else 32)
                step = 8 if is_uniform else 64
                self._used = -(-self._used // step) * step
                self.places[name] = self._used
                self._used += -(-size // 8) * 8

    @property
    def bytes(self) -> int:
        """Its length, a multiple of 64."""
        return -(-self._used // 64) * 64
