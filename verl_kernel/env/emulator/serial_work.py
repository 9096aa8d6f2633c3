# SPDX-License-Identifier: Apache-2.0
"""Computes how much of the work of blocks is serial, as blocks wait for each other.

Blocks run here one after the other, some of their work at a time. Each has a time of its own: the work that it and
those that it waited for have done by then. A block that waited was released by one of those that had a turn meanwhile;
which one is not known, so the earliest counts.
"""

from __future__ import annotations

import numpy as np

_END_QUANTILE = 0.75
"""Quantile of the blocks' times that counts as the end of all."""


class BlockTurns:
    """The turns of a launch's blocks.

    Args:
        count: how many blocks there are.
    """

    def __init__(self, count: int) -> None:
        self._work, self._time = np.zeros(count), np.zeros(count)
        self._ends_seen = np.zeros(count, np.int64)
        """How many turns of others had ended when each block last paused."""
        self._waits = np.zeros(count, bool)
        self._ends: list[float] = []
        """The times at which turns ended, without those in which a block only waited."""

    def add(self, index: int, work: int, *, waits: bool) -> None:
        """Record a turn of a block: its work, and whether it waits for others in the end."""
        if work:
            released = self._ends[self._ends_seen[index] :] if self._waits[index] else []
            self._time[index] = max(self._time[index], min(released, default=0.0)) + work
            self._work[index] += work
            self._ends.append(float(self._time[index]))
        self._waits[index], self._ends_seen[index] = waits, len(self._ends)

    @property
    def serial(self) -> float:
        """How many blocks' work follows one another, 1 if they run side by side.

        The order of blocks is secret. Of two that follow each other it puts the second behind the first in one of two
        cases, and then both had their turns in one round, so that the earliest of these is not the one waited for. The
        last to arrive at a barrier of all blocks goes on in the same turn, and one block may seem to have waited for
        that: so a quarter of the blocks may end later.
        """
        longest = float(self._work.max(initial=0.0))
        return max(1.0, 2.0 * float(np.quantile(self._time, _END_QUANTILE)) / longest - 1.0) if longest else 1.0
