# SPDX-License-Identifier: Apache-2.0
"""Stamps of the cells of memory that a launch may access."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from verl_kernel.env.executor.library import context
from verl_kernel.env.executor.lowering.sites import Site

WORDS = (context.STORES, context.LOADS, context.ATOMICS, context.STRONG_LOADS)
_WIDEST = 16
_GRAIN = 64
"""A part of memory ends at multiples of it, so that no access lies in two."""
Ranges = Sequence[tuple[int, int]]
"""Addresses and lengths."""


def cell_bytes(sites: Sequence[Site], room: str) -> int:
    """Length of a cell: of the smallest access, as each begins at a multiple of its length."""
    return min((site.bytes for site in sites if site.kind.startswith(room) and site.bytes), default=_WIDEST)


def words_of(sites: Sequence[Site]) -> list[int]:
    """Which kinds of accesses to global memory a kernel has."""
    kinds = {site.kind for site in sites}
    atomics = bool({"global atomic", "global strong store"} & kinds)
    words = [context.STORES, context.LOADS, *[context.ATOMICS] * atomics]
    return words + [context.STRONG_LOADS] * ("global strong load" in kinds)


@dataclass(frozen=True)
class Row:
    """Memory that is watched, with the stamps of its cells; a kind of access that the kernel has none of has none."""

    start: int
    bytes: int
    shift: int
    stamps: dict[int, np.ndarray]

    @classmethod
    def of(cls, start: int, length: int, cell: int, words: Sequence[int]) -> Row:
        """A row without accesses; its ends are moved to whole cells."""
        begin, end = start // _WIDEST * _WIDEST, -(-(start + length) // _WIDEST) * _WIDEST
        stamps = {word: np.zeros((end - begin) // cell, np.uint32) for word in words}
        return cls(begin, end - begin, cell.bit_length() - 1, stamps)

    def words(self) -> list[int]:
        """As native code reads it."""
        row = [self.start, self.bytes]
        return row + [self.stamps[word].ctypes.data if word in self.stamps else 0 for word in WORDS]

    def holds(self, address: int) -> bool:
        """Whether it lies in here."""
        return self.start <= address < self.start + self.bytes

    def cells(self, address: int, size: int) -> range:
        """Cells of an access."""
        first = address - self.start >> self.shift
        return range(first, first + max(1, size >> self.shift))


def merged(ranges: Ranges) -> list[tuple[int, int]]:
    """Starts and lengths of what ranges cover, without overlaps of their whole cells."""
    found: list[list[int]] = []
    for start, length in sorted(ranges):
        if length <= 0:
            continue
        if found and start // _WIDEST <= (found[-1][1] - 1) // _WIDEST:
            found[-1][1] = max(found[-1][1], start + length)
        else:
            found.append([start, start + length])
    return [(start, end - start) for start, end in found]


def parts(ranges: Ranges, most: int) -> list[list[tuple[int, int]]]:
    """What ranges cover, in parts of at most so many bytes (of at least a grain); one part at least."""
    room = max(_GRAIN, most)
    found: list[list[tuple[int, int]]] = [[]]
    left = room
    for start, length in merged(ranges):
        stop = start + length
        while start < stop:
            end = stop if _whole(start, stop) <= left else (start + left) // _GRAIN * _GRAIN
            if end > start:
                found[-1].append((start, end - start))
                left -= _whole(start, end)
                start = end
            else:
                found.append([])
                left = room
    return found


def _whole(start: int, stop: int) -> int:
    """Bytes of the whole cells between two addresses."""
    return -(-stop // _WIDEST) * _WIDEST - start // _WIDEST * _WIDEST
