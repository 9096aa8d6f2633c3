# SPDX-License-Identifier: Apache-2.0
"""A process that works for an evaluation in another thread, and can be ended from the evaluation's own."""

from __future__ import annotations

import signal
import threading
from contextlib import suppress

from verl_kernel.env.judge.processes.runner import RunnerProcess


class Stopping:
    """The process that works now, if there is one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: RunnerProcess | None = None
        self.is_stopped = False
        """Whether nobody wants results any more."""

    def begin(self, process: RunnerProcess) -> None:
        """It works from now on; once stopped, it is killed at once."""
        with self._lock:
            self._process = process
            if self.is_stopped:
                _kill(process)

    def end(self) -> None:
        """Collect it."""
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            process.end()

    def stop(self) -> None:
        """Kill it, and what comes after it; its own thread collects it."""
        with self._lock:
            self.is_stopped = True
            if self._process is not None:
                _kill(self._process)


def _kill(process: RunnerProcess) -> None:
    with suppress(OSError):  # it has ended
        signal.pidfd_send_signal(process.pidfd, signal.SIGKILL)
