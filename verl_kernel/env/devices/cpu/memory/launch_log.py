# SPDX-License-Identifier: Apache-2.0
"""The accesses of one launch, looked through when it ends, or earlier where there are many."""

from __future__ import annotations

from dataclasses import replace
from itertools import compress

import numpy as np

from verl_kernel.env.devices.cpu.memory.access import Access, line_of
from verl_kernel.env.devices.cpu.memory.area_log import LOADS, AreaLog, Unwritten
from verl_kernel.env.devices.cpu.memory.areas import Area, Areas
from verl_kernel.env.devices.cpu.memory.findings import FINDINGS, Finding
from verl_kernel.env.devices.cpu.memory.past import Past
from verl_kernel.env.devices.cpu.memory.races.order import Order
from verl_kernel.env.devices.cpu.memory.races.parts import Part
from verl_kernel.env.devices.cpu.memory.races.replay import Race

_MOST_LANES = 1 << 22
"""After so many lanes the accesses so far are looked through and forgotten, but for what the shadows keep."""
Numbered = tuple[int, Access]


class LaunchLog:
    """The accesses of one launch.

    Args:
        kernel: its name.
        file: of its source.
        grid: programs along each axis.
        areas: the memory that it may touch.
    """

    def __init__(self, kernel: str, file: str, grid: tuple[int, ...], areas: Areas) -> None:
        self.kernel, self.file, self.areas = kernel, file, areas
        self.program = 0
        """Number of the program that runs, from 1."""
        self.order = Order()
        self._grid = grid
        self._past = Past()
        self._logs = [AreaLog(area, self._past, self.order) for area in areas.all]
        self._accesses: list[tuple[int, Access]] = []
        self._lanes = 0

    def add(self, access: Access) -> int:
        """Add an access; returns its number."""
        if self._lanes > _MOST_LANES:  # not right after an access: what it tells other programs is noted only then
            self._look_through(is_last=False)
        number = self._past.add(access)
        self._accesses.append((number, access))
        self._lanes += access.pointers.size
        return number

    def end(self) -> None:
        """The launch has ended."""
        self._look_through(is_last=True)

    def index(self, program: int) -> tuple[int, ...]:
        """Of a program in the grid; the last axis changes fastest."""
        return tuple(int(place) for place in np.unravel_index(program - 1, self._grid))

    def _look_through(self, is_last: bool) -> None:
        parts: dict[int, list[Part]] = {number: [] for number in range(len(self._logs))}
        loads = [item for item in self._accesses if item[1].kind in LOADS]
        self._sort([item for item in self._accesses if item[1].kind not in LOADS], parts)
        if is_last:
            loads = self._needed(loads, parts)
        self._sort(loads, parts)
        self._accesses, self._lanes = [], 0
        for number, log in enumerate(self._logs):
            found = sorted(parts[number], key=lambda part: part.number)
            for item in log.look_through(found, is_last):
                FINDINGS.note(self._finding(log.area, item))

    def _needed(self, loads: list[Numbered], parts: dict[int, list[Part]]) -> list[Numbered]:
        """Loads of areas where anything can be wrong: not of those that the launch only loads from."""
        areas = [log.area for number, log in enumerate(self._logs) if parts[number] or not log.is_only_read]
        if not areas:
            return []
        ends = [(int(access.pointers.min()), int(access.pointers.max())) for _, access in loads]
        meets = [any(low < area.end and high >= area.start for area in areas) for low, high in ends]
        return list(compress(loads, meets))

    def _sort(self, accesses: list[Numbered], parts: dict[int, list[Part]]) -> None:
        """Add accesses to the parts of the areas that they touch."""
        for number, access in accesses:
            addresses = access.addresses
            for area, lanes in self.areas.split(addresses) if addresses.size else ():
                inside = addresses if lanes is None else addresses[lanes]
                offsets = (inside - np.uint64(self.areas.all[area].start)).astype(np.int64)
                parts[area].append(Part(number, access, offsets, lanes))

    def _finding(self, area: Area, item: Unwritten | Race) -> Finding:
        kind, program, place = self._past.facts(item.number)
        argument, offset = area.name(area.start + item.offset)
        name = "race" if isinstance(item, Race) else "uninitialised_read"
        found = Finding(name, self.kernel, line_of(place), argument, offset, self.index(program), kind.word)
        if isinstance(item, Unwritten):
            return found
        kind, program, place = self._past.facts(item.other)
        return replace(found, other_line=line_of(place), other_program=self.index(program), other_access=kind.word)
