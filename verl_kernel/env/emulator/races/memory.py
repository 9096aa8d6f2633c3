# SPDX-License-Identifier: Apache-2.0
"""Keeps stamps for the cells of memory that a launch may access."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from verl_kernel.env.emulator.library import context
from verl_kernel.env.emulator.lowering.sites import Site

WORDS = (context.STORES, context.LOADS, context.ATOMICS, context.STRONG_LOADS)
"""Kinds of accesses that have stamps, in the order in which native code finds them in a row."""
# Also what rows are rounded to, so that a row begins and ends with a whole cell of any length.
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
    # A strong store is recorded as an atomic: atomics and strong accesses do not race with each other.
    atomics = bool({"global atomic", "global strong store"} & kinds)
    words = [context.STORES, context.LOADS, *[context.ATOMICS] * atomics]
    return words + [context.STRONG_LOADS] * ("global strong load" in kinds)


@dataclass(frozen=True)
class StampRow:
    """Watched memory with stamps for its cells; `stamps` lacks the kinds of accesses that the kernel does not have."""

    start: int
    bytes: int
    shift: int
    stamps: dict[int, np.ndarray]

    @classmethod
    def of(cls, start: int, length: int, cell: int, words: Sequence[int]) -> StampRow:
        """Make a row without accesses; its ends are rounded outwards to whole cells."""
        begin, end = start // _WIDEST * _WIDEST, -(-(start + length) // _WIDEST) * _WIDEST
        # np.zeros takes pages only when they are written: cells without accesses cost nothing.
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
    spans: list[list[int]] = []
    for start, length in sorted(ranges):
        if length <= 0:
            continue
        # Tensors that share a cell would have two rows for it, and an access would be seen in one only.
        if spans and start // _WIDEST <= (spans[-1][1] - 1) // _WIDEST:
            spans[-1][1] = max(spans[-1][1], start + length)
        else:
            spans.append([start, start + length])
    return [(start, end - start) for start, end in spans]


def parts(ranges: Ranges, max_bytes: int) -> list[list[tuple[int, int]]]:
    """Split ranges into parts of at most `max_bytes` bytes (at least a grain each); returns at least one part."""
    part_bytes = max(_GRAIN, max_bytes)
    split: list[list[tuple[int, int]]] = [[]]
    bytes_left = part_bytes
    for start, length in merged(ranges):
        stop = start + length
        while start < stop:
            # A part ends at a grain, so that no access lies in two parts.
            end = stop if _cells_length(start, stop) <= bytes_left else (start + bytes_left) // _GRAIN * _GRAIN
            if end > start:
                split[-1].append((start, end - start))
                bytes_left -= _cells_length(start, end)
                start = end
            else:
                split.append([])
                bytes_left = part_bytes
    return split


def _cells_length(start: int, stop: int) -> int:
    """Return the bytes of the whole cells between two addresses."""
    return -(-stop // _WIDEST) * _WIDEST - start // _WIDEST * _WIDEST
