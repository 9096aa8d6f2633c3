# SPDX-License-Identifier: Apache-2.0
"""Time that a process uses: on a processor or asleep, not in the queue for a processor.

A wall-clock deadline makes a verdict depend on what else the machine does. Linux counts how long each thread has stood
in a run queue (the second number of /proc/<pid>/schedstat); what that leaves of the wall clock is the process's own
doing. Where the kernel does not count it, all of the wall clock is.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Protocol

_PROCESS_CLOCK = 2
"""Low bits of the clock of a process (CPUCLOCK_SCHED in linux/posix-timers.h)."""
WALL_FACTOR, _WALL_EXTRA_S = 10.0, 30.0
_PAUSE_S = 2.0
"""Between two looks that should follow each other at once: more is the machine's doing, such as a virtual one's that
stands still, which no run queue counts."""


def backstop_s(budget_s: float) -> float:
    """Wall-clock limit, in seconds, of what has `budget_s` of own time, for the case of a very busy machine."""
    return WALL_FACTOR * budget_s + _WALL_EXTRA_S


def processor_ns(pid: int) -> int:
    """Processor time of all threads of a process so far, as the kernel counts it; 0 once it has ended."""
    with suppress(OSError):
        return time.clock_gettime_ns(~pid << 3 | _PROCESS_CLOCK)
    return 0


class Waits(Protocol):
    """What somebody has waited for a processor, or for what others do."""

    def waited_ns(self) -> int:
        """Nanoseconds so far."""
        ...

    def close(self) -> None:
        """Give back what that takes."""
        ...


class RunQueue:
    """How long a thread has waited for a processor, to be read again and again."""

    def __init__(self, thread: str) -> None:
        self._fd, self._last = -1, 0
        with suppress(OSError):
            self._fd = os.open(f"/proc/{thread}/schedstat", os.O_RDONLY | os.O_CLOEXEC)

    def waited_ns(self) -> int:
        """Nanoseconds of all finished waits; one that still goes on is not included."""
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
        asked: whether the calling thread exchanges messages with it; then waits of that thread do not count either.
    """

    def __init__(self, pid: int, asked: bool = False) -> None:
        self._pid = pid
        self._queues: list[Waits] = [RunQueue(str(pid)), *([RunQueue("thread-self")] if asked else [])]
        self.start()

    def serve(self, *waits: Waits) -> None:
        """Others that this process waits for: what they say that they waited is nobody's own doing either."""
        self._queues += waits
        self.start()

    def start(self) -> None:
        """Begin again at zero."""
        self._seen: int | None = None
        self._processor, self._waited, self._wall = processor_ns(self._pid), self._waits(), time.monotonic_ns()
        self._looked, self._paused = self._wall, 0

    def used_s(self) -> float:
        """Processor time of all threads, or wall time less the waits for a processor, whichever is more, in seconds."""
        elapsed = time.monotonic_ns() - self._wall - self._paused
        return max(self._ran(), elapsed - (self._waits() - self._waited)) / 1e9

    def is_over(self, budget_s: float) -> bool:
        """Whether it has used more than `budget_s`; to be asked every now and then.

        Never while it waits for a processor: how long it has waited is known only once it has run again.
        """
        ran = self._ran()
        self._notice_pause()
        if self.used_s() <= budget_s:
            self._seen = None
            return False
        if ran > budget_s * 1e9 or not self._is_runnable():
            return True
        before, self._seen = self._seen, ran
        return before is not None and before != ran

    def _notice_pause(self) -> None:
        before, self._looked = self._looked, time.monotonic_ns()
        if self._looked - before > _PAUSE_S * 1e9:
            self._paused += self._looked - before

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
