# SPDX-License-Identifier: Apache-2.0
"""How far apart blocks read the same bytes again, from a sample of what they read (library/rereads.py).

The distance of a reading from the one before is what blocks between them have moved, each byte once, by the order of
the blocks' numbers: a cache that evicts what was used longest ago keeps bytes whose distance is within its size.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Sequence
from math import floor, log2

import numpy as np

from verl_kernel.env.executor.library import rereads
from verl_kernel.env.executor.use import Use

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
        read, written = (sum(use.once for use in uses) for uses in (reads, writes))
        again = sum(use.own for use in reads) - read
        if _FEW * again <= read or read + written <= LEAST or not self.log[rereads.LOG_USED]:
            return ()
        places, sectors = self._records()
        each = float(sectors.mean()) * _SECTOR * (int(self.log[rereads.LOG_MASK]) + 1) * (1 + written / read)
        found: Counter[int] = Counter()
        for count, weight in zip(_distinct_between(places.tolist()), sectors.tolist(), strict=True):
            if count * each > LEAST:
                found[floor(2.0 ** (floor(_STEPS * log2(count * each)) / _STEPS))] += weight
        share = sum(use.own for use in reads) / float(sectors.sum())
        most = again / max(1.0, share * found.total())
        return tuple((distance, round(weight * share * min(1.0, most))) for distance, weight in sorted(found.items()))

    def _records(self) -> tuple[np.ndarray, np.ndarray]:
        """Places and sectors, once for each block that read there, by the grid's order."""
        used = int(self.log[rereads.LOG_USED])
        rows = self.log[rereads.LOG_HEAD :][: rereads.RECORD_WORDS * used].reshape(-1, rereads.RECORD_WORDS)
        places, told = rows[:, rereads.RECORD_PLACE], rows[:, rereads.RECORD_BLOCK]
        order = np.lexsort((places, told >> 16))
        places, blocks, sectors = places[order], (told >> 16)[order], (told & 0xFFFF)[order]
        starts = np.flatnonzero(np.append(True, (np.diff(places) != 0) | (np.diff(blocks) != 0)))
        return places[starts], np.add.reduceat(sectors, starts)


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
