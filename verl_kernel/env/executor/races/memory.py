# SPDX-License-Identifier: Apache-2.0
"""Keeps stamps for the cells of memory that a launch may access."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from verl_kernel.env.executor.library import context
from verl_kernel.env.executor.lowering.sites import Site

WORDS = (context.STORES, context.LOADS, context.ATOMICS, context.STRONG_LOADS)
_WIDEST = 16
_GRAIN = 64
"""Parts of memory end at multiples of this many bytes, so that no access lies in two parts."""
Ranges = Sequence[tuple[int, int]]
"""Addresses and lengths."""


def cell_bytes(sites: Sequence[Site], room: str) -> int:
    """Return the length of a cell: that of the smallest access, as accesses begin at multiples of their length."""
    return min((site.bytes for site in sites if site.kind.startswith(room) and site.bytes), default=_WIDEST)


def words_of(sites: Sequence[Site]) -> list[int]:
    """Return the kinds of accesses to global memory that a kernel has."""
    kinds = {site.kind for site in sites}
    atomics = bool({"global atomic", "global strong store"} & kinds)
    words = [context.STORES, context.LOADS, *[context.ATOMICS] * atomics]
    return words + [context.STRONG_LOADS] * ("global strong load" in kinds)


@dataclass(frozen=True)
class Row:
    """Watched memory with stamps for its cells; `stamps` lacks the kinds of accesses that the kernel does not have."""

    start: int
    bytes: int
    shift: int
    stamps: dict[int, np.ndarray]

    @classmethod
    def of(cls, start: int, length: int, cell: int, words: Sequence[int]) -> Row:
        """Make a row without accesses; its ends are rounded outwards to whole cells."""
        begin, end = start // _WIDEST * _WIDEST, -(-(start + length) // _WIDEST) * _WIDEST
        stamps = {word: np.zeros((end - begin) // cell, np.uint32) for word in words}
        return cls(begin, end - begin, cell.bit_length() - 1, stamps)

    def words(self) -> list[int]:
        """Return the words that native code reads."""
        row = [self.start, self.bytes]
        return row + [self.stamps[word].ctypes.data if word in self.stamps else 0 for word in WORDS]

    def holds(self, address: int) -> bool:
        """Whether an address lies in this memory."""
        return self.start <= address < self.start + self.bytes

    def cells(self, address: int, size: int) -> range:
        """Return the cells of an access."""
        first = address - self.start >> self.shift
        return range(first, first + max(1, size >> self.shift))


def merged(ranges: Ranges) -> list[tuple[int, int]]:
    """Merge ranges into starts and lengths whose whole cells do not overlap."""
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
    """Split ranges into parts of at most `most` bytes (at least a grain each); returns at least one part."""
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
    """Return the bytes of the whole cells between two addresses."""
    return -(-stop // _WIDEST) * _WIDEST - start // _WIDEST * _WIDEST
