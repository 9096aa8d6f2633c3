# SPDX-License-Identifier: Apache-2.0
"""Computes how far apart blocks read the same bytes again, from a sample of what they read (library/reuse_distance.py).

The distance between two reads of the same bytes is what the blocks between them move, each byte once, in the order of
the blocks' numbers: a cache that evicts the least recently used bytes keeps those whose distance is within its size.
Blocks that all run at once do not follow one another: each is as far in its own loads as all others are in theirs.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor, log2

import numpy as np

from verl_kernel.env.emulator.library import reuse_distance


@dataclass(frozen=True)
class Use:
    """Reads, or writes, of a buffer by a launch, in bytes of sectors that were not in the first-level cache."""

    total: int = 0
    own: int = 0
    """Like `total`, but bytes that a block accesses again count once."""
    low: int = 0
    """Address of the first sector; `high` is the address after the last one."""
    high: int = 0

    @property
    def extent(self) -> int:
        """Bytes between the first and the last one that were accessed."""
        return self.high - self.low

    @property
    def once(self) -> int:
        """Return the bytes from device memory if the second level keeps all that is accessed again."""
        return min(self.own, self.extent)

    @property
    def repeated(self) -> int:
        """Return the additional bytes if the second level does not keep what a block accesses again."""
        return round(self.once * (self.total / self.own - 1.0)) if self.own else 0

    @property
    def is_shared(self) -> bool:
        """Whether several blocks access the same bytes."""
        return 2 * self.own > 3 * self.extent


LEAST = 1 << 22
"""Distances up to this many bytes fit in every second-level cache."""
_STEPS = 4
"""Distances are rounded down to this many values per octave."""
_FEW = 50
"""Bytes read again are ignored below this fraction (1/50) of all bytes."""
_SECTOR = 32


def base(row: int, address: int) -> int:
    """Return what to subtract from an address's 512-byte number to get its location: row of the buffer, and offset."""
    return (address >> 9) - (row << reuse_distance.ROW_SHIFT)


def is_small(reads: Sequence[Use], writes: Sequence[Use]) -> bool:
    """Whether a launch reads little again, or moves no more than fits in every second-level cache.

    A buffer that fits in such a cache is ignored: the other bytes moved meanwhile are many times as much.
    """
    read, written = (sum(use.once for use in uses) for uses in (reads, writes))
    repeated = sum(use.own - use.once for use in reads if use.extent > LEAST)
    return _FEW * repeated <= read or read + written <= LEAST


@dataclass(frozen=True)
class Later:
    """What the later half of consecutive blocks loads: fractions of its bytes by distance, above `LEAST`."""

    again: dict[int, float]
    """Fractions that one of these blocks loaded before."""
    first: dict[int, float]
    """Fractions that none of these loaded before: if another block did, it is farther away."""
    new: float
    """The fraction that none of these blocks loaded before, at any distance."""


class Rereads:
    """The log of one launch.

    Args:
        numbers: the blocks' numbers, in the order in which they run; if that order is secret, so is the sample.
    """

    def __init__(self, numbers: np.ndarray) -> None:
        self.log = np.zeros(reuse_distance.LOG_HEAD + reuse_distance.RECORD_WORDS * reuse_distance.RECORDS, np.int64)
        # Five bits apart, so that the order of the first blocks counts, not only which ones they are.
        self.log[reuse_distance.LOG_SALT] = int(np.bitwise_xor.reduce(numbers[:8] << np.arange(len(numbers[:8])) * 5))

    def distances(self, reads: Sequence[Use], writes: Sequence[Use]) -> tuple[tuple[int, int], ...]:
        """Return distances above `LEAST`, and how many bytes are read again at each, beyond the first time.

        Args:
            reads: the launch's reads, by buffer.
            writes: the launch's writes, by buffer.
        """
        if is_small(reads, writes) or not self.log[reuse_distance.LOG_USED]:
            return ()
        read, written = (sum(use.once for use in uses) for uses in (reads, writes))
        locations, sectors, _ = self._records()
        # Writes take room in the cache too, in proportion.
        location_bytes = self._bytes_per_location(sectors) * (1 + written / read)
        requested = sum(use.own for use in reads)
        fractions = _by_distance(_distinct_between(locations.tolist()), sectors / float(sectors.sum()), location_bytes)
        return scaled(fractions, requested, requested - read)

    def returns(self, reads: Sequence[Use], writes: Sequence[Use]) -> tuple[tuple[int, int], ...]:
        """Return what `distances` does for blocks that all run at once, of bytes that another block read before.

        What a block reads again itself is counted elsewhere (`Use.repeated`).
        """
        if is_small(reads, writes) or not self.log[reuse_distance.LOG_USED]:
            return ()
        read, written = (sum(use.once for use in uses) for uses in (reads, writes))
        location_bytes = self._bytes_per_location(self._records()[1]) * (1 + written / read)
        locations, sectors, blocks = self._in_time()
        is_another = _follow_another(locations.tolist(), blocks.tolist())
        between = np.where(is_another, _distinct_between(locations.tolist()), 0)
        fractions = _by_distance(between.tolist(), sectors / float(sectors.sum()), location_bytes)
        return scaled(fractions, sum(use.total for use in reads), sum(use.own for use in reads) - read)

    def later(self, written: int) -> Later:
        """Return what the later half of these blocks loads, if they are consecutive blocks of a larger launch.

        Args:
            written: bytes written by the blocks of the log.
        """
        locations, sectors, blocks = self._records()
        # The first half is the history of the later one: what it loads itself may have been loaded before.
        late = 2 * blocks > blocks[:1] + blocks[-1:]
        if not late.any():
            return Later({}, {}, 0.0)
        is_first = _firsts(locations)
        location_bytes = self.moved(written) / int(is_first.sum())
        between = np.where(is_first, np.cumsum(is_first) - 1, _distinct_between(locations.tolist()))
        parts = sectors / float(sectors[late].sum())
        again, first = (
            _by_distance(between[part], parts[part], location_bytes) for part in (late & ~is_first, late & is_first)
        )
        return Later(again, first, float(parts[late & is_first].sum()))

    def moved(self, written: int) -> float:
        """Return the bytes that the blocks of the log loaded, each once, plus those that they wrote."""
        locations, sectors, _ = self._records()
        return self._bytes_per_location(sectors) * len(np.unique(locations)) + written if len(locations) else written

    def _bytes_per_location(self, sectors: np.ndarray) -> float:
        """Return the bytes that each sampled location represents, given the sectors of each record."""
        return float(sectors.mean()) * _SECTOR * (int(self.log[reuse_distance.LOG_MASK]) + 1)

    def _records(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return locations, sectors and blocks, one record for each block that read a location, in the grid's order."""
        locations, block_sectors, _ = self._rows()
        order = np.lexsort((locations, block_sectors >> 16))
        locations, blocks, sectors = locations[order], (block_sectors >> 16)[order], (block_sectors & 0xFFFF)[order]
        # Several records of a block at a location are one: only blocks are compared.
        starts = np.flatnonzero((np.diff(locations, prepend=-1) != 0) | (np.diff(blocks, prepend=-1) != 0))
        return locations[starts], np.add.reduceat(sectors, starts) if len(starts) else sectors, blocks[starts]

    def _in_time(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return locations, sectors and blocks, ordered by how much each block had loaded before."""
        locations, block_sectors, times = self._rows()
        order = np.lexsort((locations, times))
        return locations[order], (block_sectors & 0xFFFF)[order], (block_sectors >> 16)[order]

    def _rows(self) -> list[np.ndarray]:
        """Return the words of all records, by kind."""
        used = int(self.log[reuse_distance.LOG_USED])
        return [
            *self.log[reuse_distance.LOG_HEAD :][: reuse_distance.RECORD_WORDS * used]
            .reshape(-1, reuse_distance.RECORD_WORDS)
            .T
        ]


def scaled(parts: Mapping[int, float], requested: int, again: int) -> tuple[tuple[int, int], ...]:
    """Scale fractions to bytes by distance; their sum is at most `again`.

    Args:
        parts: fractions of the bytes that blocks load, by distance.
        requested: all bytes that blocks load.
        again: bytes read beyond the first time.
    """
    bytes_per_part = requested * min(1.0, again / max(1.0, requested * sum(parts.values())))
    return tuple((distance, round(part * bytes_per_part)) for distance, part in sorted(parts.items()))


def _by_distance(between: Sequence[int], parts: np.ndarray, location_bytes: float) -> dict[int, float]:
    """Sum fractions by distance, above `LEAST`; each location between two reads counts `location_bytes`."""
    fractions: defaultdict[int, float] = defaultdict(float)
    for count, part in zip(between, parts.tolist(), strict=True):
        # Nearer ones are hits in every second-level cache.
        if count * location_bytes > LEAST:
            # Rounded down to a quarter of an octave, so that a launch has few distances.
            fractions[floor(2.0 ** (floor(_STEPS * log2(count * location_bytes)) / _STEPS))] += part
    return fractions


def _follow_another(locations: Sequence[int], blocks: Sequence[int]) -> np.ndarray:
    """Return a mask of the reads whose location another block was the last to read."""
    last: dict[int, int] = {}
    is_another = np.zeros(len(locations), bool)
    for number, (location, block) in enumerate(zip(locations, blocks, strict=True)):
        is_another[number] = last.get(location, block) != block
        last[location] = block
    return is_another


def _firsts(locations: np.ndarray) -> np.ndarray:
    """Return a mask of the first read of each location."""
    is_first = np.zeros(len(locations), bool)
    is_first[np.unique(locations, return_index=True)[1]] = True
    return is_first


def _distinct_between(locations: Sequence[int]) -> list[int]:
    """Count for each read the other locations since the last read of its own; 0 for a first read."""
    last: dict[int, int] = {}
    ended_starts: list[int] = []  # where pairs of reads of one location begin
    counts = []
    for number, location in enumerate(locations):
        before = last.get(location)
        last[location] = number
        if before is None:
            counts.append(0)
            continue
        # The stack distance of Mattson et al. ("Evaluation techniques for storage hierarchies", 1970): of the
        # accesses since the last one here, each location counts once.
        repeated = len(ended_starts) - bisect_right(ended_starts, before)
        counts.append(number - before - 1 - repeated)
        insort(ended_starts, before)
    return counts
