# SPDX-License-Identifier: Apache-2.0
"""How far apart blocks read the same bytes again, from a sample of what they read (library/rereads.py).

The distance of a reading from the one before is what blocks between them have moved, each byte once, by the order of
the blocks' numbers: a cache that evicts what was used longest ago keeps bytes whose distance is within its size.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor, log2

import numpy as np

from verl_kernel.env.executor.library import rereads

# What a launch asks of the second-level cache, of one buffer.


@dataclass(frozen=True)
class Use:
    """Reads, or writes, of a buffer by a launch: bytes of sectors that the first-level cache had not."""

    total: int = 0
    own: int = 0
    """The same, but what a block accesses again counts once."""
    low: int = 0
    """Address of the first sector, and the first byte behind the last one."""
    high: int = 0

    @property
    def extent(self) -> int:
        """Bytes between the first and the last one that was accessed."""
        return self.high - self.low

    @property
    def once(self) -> int:
        """Bytes from device memory if the second level keeps all that is accessed again."""
        return min(self.own, self.extent)

    @property
    def repeated(self) -> int:
        """Further bytes if it does not keep what a block accesses again."""
        return round(self.once * (self.total / self.own - 1.0)) if self.own else 0

    @property
    def is_shared(self) -> bool:
        """Whether blocks access the same bytes."""
        return 2 * self.own > 3 * self.extent


LEAST = 1 << 22
"""Distances up to this many bytes are within every second-level cache."""
_STEPS = 4
"""Distances are rounded down to this many values an octave."""
_FEW = 50
"""Bytes read again count from this part of all on."""
_SECTOR = 32


def base(row: int, address: int) -> int:
    """What to take from the number of an address's 512 bytes, so that it names the row and what is before them."""
    return (address >> 9) - (row << rereads.ROW_SHIFT)


def is_small(reads: Sequence[Use], writes: Sequence[Use]) -> bool:
    """Whether a launch reads little again, or moves no more than every second-level cache holds.

    A buffer that such a cache holds is not looked at: what else moves meanwhile is many times as much.
    """
    read, written = (sum(use.once for use in uses) for uses in (reads, writes))
    again = sum(use.own - use.once for use in reads if use.extent > LEAST)
    return _FEW * again <= read or read + written <= LEAST


@dataclass(frozen=True)
class Later:
    """What the later half of consecutive blocks loads: parts of it by distance, above `LEAST`."""

    again: dict[int, float]
    """Loaded before by one of these blocks."""
    first: dict[int, float]
    """By none of them: if another block has loaded it, that is further away."""
    new: float
    """The part that none of them has loaded before, whatever the distance."""


class Rereads:
    """The log of one launch.

    Args:
        numbers: of the blocks, in the order in which they run; where that is secret, it is secret what is drawn.
    """

    def __init__(self, numbers: np.ndarray) -> None:
        self.log = np.zeros(rereads.LOG_HEAD + rereads.RECORD_WORDS * rereads.RECORDS, np.int64)
        self.log[rereads.LOG_SALT] = int(np.bitwise_xor.reduce(numbers[:8] << np.arange(len(numbers[:8])) * 5))

    def distances(self, reads: Sequence[Use], writes: Sequence[Use]) -> tuple[tuple[int, int], ...]:
        """Distances above `LEAST`, and how many bytes are read again at each, beyond a first time.

        Args:
            reads: of the launch, by buffer.
            writes: likewise.
        """
        if is_small(reads, writes) or not self.log[rereads.LOG_USED]:
            return ()
        read, written = (sum(use.once for use in uses) for uses in (reads, writes))
        places, sectors, _ = self._records()
        each = self._each(sectors) * (1 + written / read)
        asked = sum(use.own for use in reads)
        found = _far(_distinct_between(places.tolist()), sectors / float(sectors.sum()), each)
        return scaled(found, asked, asked - read)

    def later(self, written: int) -> Later:
        """What is loaded by the later half of these blocks, if they are consecutive ones of a larger launch.

        Args:
            written: bytes, by the blocks of the log.
        """
        places, sectors, blocks = self._records()
        late = 2 * blocks > blocks[:1] + blocks[-1:]
        if not late.any():
            return Later({}, {}, 0.0)
        is_first = _firsts(places)
        each = self.moved(written) / int(is_first.sum())
        between = np.where(is_first, np.cumsum(is_first) - 1, _distinct_between(places.tolist()))
        parts = sectors / float(sectors[late].sum())
        again, first = (_far(between[part], parts[part], each) for part in (late & ~is_first, late & is_first))
        return Later(again, first, float(parts[late & is_first].sum()))

    def moved(self, written: int) -> float:
        """Bytes that the blocks of the log loaded, each once, and those that they wrote."""
        places, sectors, _ = self._records()
        return self._each(sectors) * len(np.unique(places)) + written if len(places) else written

    def _each(self, sectors: np.ndarray) -> float:
        """Bytes that a place of the sample stands for, in the mean over so many sectors of each."""
        return float(sectors.mean()) * _SECTOR * (int(self.log[rereads.LOG_MASK]) + 1)

    def _records(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Places, sectors and blocks, once for each block that read there, by the grid's order."""
        used = int(self.log[rereads.LOG_USED])
        rows = self.log[rereads.LOG_HEAD :][: rereads.RECORD_WORDS * used].reshape(-1, rereads.RECORD_WORDS)
        places, told = rows[:, rereads.RECORD_PLACE], rows[:, rereads.RECORD_BLOCK]
        order = np.lexsort((places, told >> 16))
        places, blocks, sectors = places[order], (told >> 16)[order], (told & 0xFFFF)[order]
        starts = np.flatnonzero((np.diff(places, prepend=-1) != 0) | (np.diff(blocks, prepend=-1) != 0))
        return places[starts], np.add.reduceat(sectors, starts) if used else sectors, blocks[starts]


def scaled(parts: Mapping[int, float], asked: int, again: int) -> tuple[tuple[int, int], ...]:
    """Bytes by distance, `again` at most.

    Args:
        parts: of the bytes that blocks load, by distance.
        asked: all these bytes.
        again: those beyond a first time.
    """
    each = asked * min(1.0, again / max(1.0, asked * sum(parts.values())))
    return tuple((distance, round(part * each)) for distance, part in sorted(parts.items()))


def _far(between: Sequence[int], parts: np.ndarray, each: float) -> dict[int, float]:
    """Parts by distance, above `LEAST`; `each` is bytes for one of the places between."""
    found: defaultdict[int, float] = defaultdict(float)
    for count, part in zip(between, parts.tolist(), strict=True):
        if count * each > LEAST:
            found[floor(2.0 ** (floor(_STEPS * log2(count * each)) / _STEPS))] += part
    return found


def _firsts(places: np.ndarray) -> np.ndarray:
    """Which places come for the first time."""
    is_first = np.zeros(len(places), bool)
    is_first[np.unique(places, return_index=True)[1]] = True
    return is_first


def _distinct_between(places: Sequence[int]) -> list[int]:
    """For each place, how many others come between it and the same place before; 0 where it comes first."""
    last: dict[int, int] = {}
    begun: list[int] = []  # where the pairs of equal places that have ended begin
    found = []
    for number, place in enumerate(places):
        before = last.get(place)
        last[place] = number
        if before is None:
            found.append(0)
            continue
        repeated = len(begun) - bisect_right(begun, before)
        found.append(number - before - 1 - repeated)
        insort(begun, before)
    return found
