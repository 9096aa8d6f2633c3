# SPDX-License-Identifier: Apache-2.0
"""Counts a launch from samples of its programs, which are executed.

Two samples are drawn independently and must agree: they are doubled until they do. The result combines both samples.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import ceil, prod

import numpy as np

from verl_kernel.env.emulator.counts import LaunchCount, SiteCount
from verl_kernel.env.emulator.reuse_distance import Later, Rereads, Use, is_small, scaled
from verl_kernel.env.ipc.execution_messages import Tally

# Selects the programs of a grid that run, and how many programs each of them represents.
#
# The first and the last index of each axis are separate parts, since masks take effect there: a launch whose grid
# follows its tensors is then counted exactly. A part has equal strata, as many as its share of the programs.


Grid = tuple[int, int, int]
WHOLE = 64
"""Grids of up to this many programs are run completely."""


@dataclass(frozen=True)
class Stratum:
    """Programs of which one is run to represent all."""

    part: tuple[tuple[int, int], ...]
    """First index and length along each axis."""
    first: int
    """Number of its first program within the part."""
    size: int

    def draw(self, random: np.random.Generator, grid: Grid) -> int:
        """Draw one of its programs; returns its number in the grid, whose first axis varies fastest."""
        number = self.first + int(random.integers(self.size))
        position = []
        for start, length in self.part:
            number, index = divmod(number, length)
            position.append(start + index)
        x, y, z = position
        return x + grid[0] * (y + grid[1] * z)


def strata(grid: Grid, number_of_strata: int) -> list[Stratum]:
    """Return the strata of a grid.

    Args:
        grid: programs along each axis.
        number_of_strata: how many there are about: each part has its share, at least one.
    """
    result: list[Stratum] = []
    for part in product(*map(_segments, grid)):
        count = prod(length for _, length in part)
        share = min(count, ceil(number_of_strata * count / prod(grid)))  # a long edge of a grid gets more than one
        for number in range(share):
            start, end = count * number // share, count * (number + 1) // share
            result.append(Stratum(part, start, end - start))
    return result


def _segments(size: int) -> list[tuple[int, int]]:
    """Return first indices and lengths of the parts of an axis."""
    return [(index, 1) for index in range(size)] if size <= 2 else [(0, 1), (1, size - 2), (size - 1, 1)]


# Finds how far apart the programs of a large launch read the same bytes again, from runs of consecutive programs.
#
# Programs sampled far from each other do not show what the programs between them read. So windows of consecutive
# programs run as well, each long enough to move twice the bytes of a second-level cache.


MOVED = 128 << 20
"""Bytes that a window moves, shared ones counted once: twice 64 MB, which no cache of a GPU profile exceeds."""
_WINDOW_WORK = 3e9
"""Instructions of single threads that a window may take; a shorter window shows shorter distances only."""


@dataclass(frozen=True)
class Windows:
    """Runs windows of one launch.

    Args:
        run: runs programs of the launch, by number.
        grid: the launch's grid.
        random: draws where windows begin, and the order within them.
    """

    run: Callable[[Sequence[int]], LaunchCount]
    grid: Grid
    random: np.random.Generator

    def rereads(self, count: LaunchCount) -> tuple[tuple[int, int], ...]:
        """Return distances and bytes read again at each, as `Rereads.distances` does.

        Args:
            count: the extrapolated count of the whole launch.
        """
        if is_small(count.reads, count.writes):
            return ()
        total = prod(self.grid)
        longest = min(total, int(_WINDOW_WORK / max(1, count.heaviest_work)))
        length = int(MOVED * total / sum(use.own for use in (*count.reads, *count.writes)))
        length = max(2, min(longest, length))
        first_log, first_written = self._window(0, length)
        longer = min(longest, int(length * MOVED / max(1.0, first_log.moved(first_written))))
        if longer > length:  # programs share the bytes that they read, so the first window moved too little
            first_log, first_written = self._window(0, longer)
        second_log, second_written = self._window(1, max(length, longer))
        return _whole_rereads(count, (first_log.later(first_written), second_log.later(second_written)))

    def _window(self, half: int, length: int) -> tuple[Rereads, int]:
        """Run consecutive programs that begin in one half of the grid; returns their log and bytes written."""
        room = prod(self.grid) - length
        low, high = (room * part // 2 for part in (half, half + 1))
        start = low + int(self.random.integers(high - low + 1))
        count = self.run((start + self.random.permutation(length)).tolist())
        assert count.log is not None  # the window has run
        return count.log, sum(use.own for use in count.writes)


def _whole_rereads(count: LaunchCount, halves: Sequence[Later]) -> tuple[tuple[int, int], ...]:
    """Extrapolate bytes by distance. What is new in a window, beyond a first load, was loaded before the window."""
    requested, once = (sum(getattr(use, name) for use in count.reads) for name in ("own", "once"))
    new = requested * sum(half.new for half in halves) / len(halves)
    missed_share = max(0.0, 1.0 - once / max(1.0, new))
    parts: defaultdict[int, float] = defaultdict(float)
    for half in halves:
        for distances, part in ((half.again, 1.0), (half.first, missed_share)):
            for distance, size in distances.items():
                parts[distance] += part * size / len(halves)
    return scaled(parts, requested, requested - once)


Weighted = tuple[float, LaunchCount]
"""How many programs a program represents, and what it did."""


def extrapolated(shape: tuple[int, int, int], runs: Sequence[Weighted]) -> LaunchCount:
    """Return the count of a whole launch.

    Sums are weighted. The first and the last accessed address of a buffer are those that were seen.

    Args:
        shape: shape of the grid.
        runs: some programs, at least one.
    """
    first = runs[0][1]
    return LaunchCount(
        first.program,
        first.module,
        shape,
        first.warps,
        first.shared_bytes,
        lanes=_array([(weight, count.lanes) for weight, count in runs]),
        warps_entered=_array([(weight, count.warps_entered) for weight, count in runs]),
        sites=[_site([(weight, count.sites[number]) for weight, count in runs]) for number in range(len(first.sites))],
        reads=[_use([(weight, count.reads[number]) for weight, count in runs]) for number in range(len(first.reads))],
        writes=[
            _use([(weight, count.writes[number]) for weight, count in runs]) for number in range(len(first.writes))
        ],
        rereads=(),  # `Windows` finds these
        returns=(),
        heaviest_bytes=max(count.heaviest_bytes for _, count in runs),
        heaviest_work=max(count.heaviest_work for _, count in runs),
        voids=tuple(_array([(weight, np.array(count.voids)) for weight, count in runs]).tolist()),
    )


def _array(parts: Sequence[tuple[float, np.ndarray]]) -> np.ndarray:
    total = np.zeros(len(parts[0][1]), np.float64)
    for weight, values in parts:
        total += weight * values
    return np.rint(total).astype(np.int64)


def _site(parts: Sequence[tuple[float, SiteCount]]) -> SiteCount:
    def total(name: str) -> int:
        return round(sum(weight * int(getattr(count, name)) for weight, count in parts))

    return SiteCount(
        parts[0][1].site,
        total("accesses"),
        total("sectors"),
        total("unwritten"),
        total("missed"),
        row=next((count.row for _, count in parts if count.accesses), 0),
    )


def _use(parts: Sequence[tuple[float, Use]]) -> Use:
    used = [(weight, use) for weight, use in parts if use.total]
    if not used:
        return Use()
    return Use(
        total=round(sum(weight * use.total for weight, use in used)),
        own=round(sum(weight * use.own for weight, use in used)),
        low=min(use.low for _, use in used),
        high=max(use.high for _, use in used),
    )


AGREEMENT = 0.05
"""How far two samples may differ in any number, relative to the larger one."""
TRIAL_STRATA = 4
"""Strata of a grid when an autotuner compares configurations, for which a rough count suffices."""
LEAST_STRATA = 8
"""Fewest strata of a grid for each of two samples."""
MOST_STRATA = 128
"""Most strata for each of the first two samples."""
_MOST_DOUBLINGS = 3
"""How often samples are doubled at most."""
_SAMPLE_WORK = 3e9
"""Instructions of single threads that the first two samples together may take, beyond the least number of programs."""
Run = Callable[[Sequence[int]], LaunchCount]
"""Runs programs of the launch, by number."""


class SamplesDisagree(Exception):
    """Two samples of a launch do not agree."""

    def __init__(self, entry: str, difference: float) -> None:
        super().__init__(
            f"two samples of its programs differ by {difference:.0%} in {entry}, so what all of them do is not known"
        )


@dataclass(frozen=True)
class Sampler:
    """Samples one launch.

    Args:
        run: runs some of its programs.
        grid: the launch's grid.
        random: draws programs.
        compare: finds the number in which two tallies differ most, and by how much.
        tally_of: converts a count to a tally.
    """

    run: Run
    grid: Grid
    random: np.random.Generator
    tally_of: Callable[[LaunchCount], Tally]
    compare: Callable[[Tally, Tally], tuple[str, float]]

    def count(self, is_tried: bool = False) -> LaunchCount:
        """Return what the whole launch does.

        Args:
            is_tried: whether a rough answer suffices.

        Raises:
            SamplesDisagree: they do not agree.
            Fault: a program does what no GPU defines.
        """
        total = prod(self.grid)
        if total <= WHOLE:
            return self.run(self.random.permutation(total).tolist())
        first = self.run([0])
        if is_tried:
            return extrapolated(self.grid, self._sample(strata(self.grid, TRIAL_STRATA), {0: first}))
        number = int(min(MOST_STRATA, max(LEAST_STRATA, _SAMPLE_WORK / 2 / max(1, first.heaviest_work))))
        for _ in range(_MOST_DOUBLINGS + 1):
            counts = {0: first}
            samples = [self._sample(strata(self.grid, number), counts) for _ in range(2)]
            entry, difference = self.compare(*(self.tally_of(extrapolated(self.grid, sample)) for sample in samples))
            if difference <= AGREEMENT:
                both = [(weight / 2, count) for sample in samples for weight, count in sample]
                # Both together are twice the grid, so each weight is halved.
                whole = extrapolated(self.grid, both)
                return replace(whole, rereads=Windows(self.run, self.grid, self.random).rereads(whole))
            number *= 2
        raise SamplesDisagree(entry, difference)  # check: counts-of-samples-agree

    def _sample(self, parts: Sequence[Stratum], counts: dict[int, LaunchCount]) -> list[Weighted]:
        """Run one program of each stratum; a program that was run for another sample is not run again."""
        programs = [(stratum.draw(self.random, self.grid), stratum.size) for stratum in parts]
        # In random order, as a GPU may run them.
        for index in self.random.permutation(len(programs)).tolist():
            number = programs[index][0]
            if number not in counts:
                counts[number] = self.run([number])
        return [(float(size), counts[number]) for number, size in programs]
