# SPDX-License-Identifier: Apache-2.0
"""What stays known of each access of a launch by its number, from 1: its kind, program and place."""

from __future__ import annotations

import numpy as np

from verl_kernel.env.devices.cpu.memory.access import Access, Array, Kind, Place


class Past:
    """The accesses of one launch so far."""

    def __init__(self) -> None:
        self._kinds: list[Kind] = []
        self._places: list[Place | None] = []
        self._programs = [0]
        self._array = np.zeros(1, np.int32)

    def add(self, access: Access) -> int:
        """Number of another access."""
        self._kinds.append(access.kind)
        self._places.append(access.place)
        self._programs.append(access.program)
        return len(self._programs) - 1

    def facts(self, number: int) -> tuple[Kind, int, Place | None]:
        """Kind, program and place of an access."""
        return self._kinds[number - 1], self._programs[number], self._places[number - 1]

    def programs(self) -> Array:
        """Programs by number of an access; 0 for number 0, which is none."""
        if self._array.size != len(self._programs):
            self._array = np.array(self._programs, np.int32)
        return self._array
