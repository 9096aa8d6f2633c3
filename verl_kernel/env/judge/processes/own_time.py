# SPDX-License-Identifier: Apache-2.0
"""Time that a process uses: on a processor or asleep, not in the queue for a processor.

With a wall-clock deadline a verdict would depend on what else the machine does. Linux counts how long each thread has
waited in a run queue (the second number of /proc/<pid>/schedstat). Own time is wall-clock time without these waits. If
Linux does not count them, own time is wall-clock time.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Protocol

_PROCESS_CLOCK = 2
"""Low bits of the clock of a process (CPUCLOCK_SCHED in linux/posix-timers.h)."""
WALL_FACTOR = 10.0
"""The wall-clock limit as a multiple of a limit of own time."""
_WALL_EXTRA_S = 30.0
"""Seconds added to that, which a busy machine may need where the limit is short."""
_PAUSE_S = 2.0
"""Longest time between two looks that follow each other directly. A longer one is a pause of the machine, such as a
virtual machine that stands still, which no run queue counts."""


def backstop_s(budget_s: float) -> float:
    """Return the wall-clock limit for `budget_s` of own time, both in seconds; a very busy machine may reach it."""
    return WALL_FACTOR * budget_s + _WALL_EXTRA_S


def processor_ns(pid: int) -> int:
    """Return the processor time of all threads of a process, as Linux counts it; 0 once it has ended."""
    with suppress(OSError):
        # The clock of another process, as `clock_getcpuclockid(3)` builds its id: no file of /proc to parse.
        return time.clock_gettime_ns(~pid << 3 | _PROCESS_CLOCK)
    return 0


class Waits(Protocol):
    """Waits that are not own time: for a processor, or for another process."""

    def waited_ns(self) -> int:
        """Nanoseconds so far."""
        ...

    def close(self) -> None:
        """Release resources."""
        ...


class RunQueue:
    """How long a thread has waited for a processor; can be read repeatedly."""

    def __init__(self, thread: str) -> None:
        self._fd, self._last = -1, 0
        with suppress(OSError):
            self._fd = os.open(f"/proc/{thread}/schedstat", os.O_RDONLY | os.O_CLOEXEC)

    def waited_ns(self) -> int:
        """Nanoseconds of all finished waits, without a current one."""
        if self._fd >= 0:
            with suppress(OSError, IndexError, ValueError):  # it has ended
                self._last = int(os.pread(self._fd, 128, 0).split()[1])
        return self._last

    def close(self) -> None:
        """Close its descriptor."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class OwnTime:
    """Own time of a process since `start`.

    Args:
        pid: the process; the waits of its first thread count.
        is_asked: whether the calling thread exchanges messages with it; then waits of that thread do not count either.
    """

    def __init__(self, pid: int, is_asked: bool = False) -> None:
        self._pid = pid
        self._queues: list[Waits] = [RunQueue(str(pid)), *([RunQueue("thread-self")] if is_asked else [])]
        self.start()

    def serve(self, *waits: Waits) -> None:
        """Exclude further waits, of other processes for which this process waits; begin again at zero."""
        self._queues += waits
        self.start()

    def start(self) -> None:
        """Begin again at zero."""
        self._ran_at_look: int | None = None
        self._processor, self._waited, self._wall = processor_ns(self._pid), self._waits(), time.monotonic_ns()
        self._looked, self._paused = self._wall, 0

    def used_s(self) -> float:
        """Return seconds: the larger of the processor time of all threads and wall-clock time without waits."""
        # The larger of both: many threads use more processor time than the wall clock shows, and sleep uses none.
        elapsed = time.monotonic_ns() - self._wall - self._paused
        return max(self._ran(), elapsed - (self._waits() - self._waited)) / 1e9

    def is_over(self, budget_s: float) -> bool:
        """Whether the process has used more than `budget_s`; call it repeatedly.

        False while the process waits for a processor, as the length of a wait is known only after it.
        """
        ran = self._ran()
        self._notice_pause()
        if self.used_s() <= budget_s:
            self._ran_at_look = None
            return False
        if ran > budget_s * 1e9 or not self._is_runnable():
            return True
        # Runnable, and perhaps in the queue since long ago: it is late only if it has run between two looks.
        ran_before, self._ran_at_look = self._ran_at_look, ran
        return ran_before is not None and ran_before != ran

    def _notice_pause(self) -> None:
        looked_before, self._looked = self._looked, time.monotonic_ns()
        if self._looked - looked_before > _PAUSE_S * 1e9:
            self._paused += self._looked - looked_before

    def close(self) -> None:
        """Close its descriptors."""
        for queue in self._queues:
            queue.close()

    def _ran(self) -> int:
        return max(0, processor_ns(self._pid) - self._processor)

    def _waits(self) -> int:
        return sum(queue.waited_ns() for queue in self._queues)

    def _is_runnable(self) -> bool:
        with suppress(OSError):
            return Path(f"/proc/{self._pid}/stat").read_bytes().rpartition(b") ")[2].startswith(b"R")
        return False
