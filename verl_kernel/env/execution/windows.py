# SPDX-License-Identifier: Apache-2.0
"""How far apart the programs of a large launch read the same bytes again, from runs of neighbours.

Programs that are sampled apart from each other do not tell what others would have read between them. So windows of
consecutive programs run as well, each long enough to move twice what a second-level cache holds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from verl_kernel.env.execution.strata import Grid
from verl_kernel.env.executor.counts import LaunchCount
from verl_kernel.env.executor.rereads import Later, Rereads, is_small, scaled

MOVED = 128 << 20
"""Bytes that a window moves, what programs share once: twice the 64 MB that no cache of a GPU profile exceeds."""
_WORK = 3e9
"""Instructions of single threads that a window may take; a shorter one tells of shorter distances only."""


@dataclass(frozen=True)
class Windows:
    """Runs windows of one launch.

    Args:
        run: runs programs of the launch, by number.
        grid: of it.
        random: draws where windows begin, and the order within them.
    """

    run: Callable[[Sequence[int]], LaunchCount]
    grid: Grid
    random: np.random.Generator

    def rereads(self, count: LaunchCount) -> tuple[tuple[int, int], ...]:
        """Distances and bytes read again at each, as `Rereads.distances` has them.

        Args:
            count: of the whole launch, extrapolated.
        """
        if is_small(count.reads, count.writes):
            return ()
        total = prod(self.grid)
        most = min(total, int(_WORK / max(1, count.heaviest_work)))
        length = int(MOVED * total / sum(use.own for use in (*count.reads, *count.writes)))
        length = max(2, min(most, length))
        log, written = self._window(0, length)
        longer = min(most, int(length * MOVED / max(1.0, log.moved(written))))
        if longer > length:  # programs share what they read
            log, written = self._window(0, longer)
        other, more = self._window(1, max(length, longer))
        return _of_all(count, (log.later(written), other.later(more)))

    def _window(self, half: int, length: int) -> tuple[Rereads, int]:
        """The log of consecutive programs that begin in one half of the grid, and the bytes that they wrote."""
        room = prod(self.grid) - length
        low, high = (room * place // 2 for place in (half, half + 1))
        start = low + int(self.random.integers(high - low + 1))
        count = self.run((start + self.random.permutation(length)).tolist())
        assert count.log is not None  # it has been run
        return count.log, sum(use.own for use in count.writes)


def _of_all(count: LaunchCount, halves: Sequence[Later]) -> tuple[tuple[int, int], ...]:
    """Bytes by distance of the whole launch. What is new in a window, beyond a first time, was loaded before it."""
    asked, once = (sum(getattr(use, name) for use in count.reads) for name in ("own", "once"))
    new = asked * sum(half.new for half in halves) / len(halves)
    far = max(0.0, 1.0 - once / max(1.0, new))
    parts: defaultdict[int, float] = defaultdict(float)
    for half in halves:
        for distances, part in ((half.again, 1.0), (half.first, far)):
            for distance, size in distances.items():
                parts[distance] += part * size / len(halves)
    return scaled(parts, asked, asked - once)
