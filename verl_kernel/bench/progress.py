# SPDX-License-Identifier: Apache-2.0
"""Shows a run's progress on standard error: a bar in a terminal, elsewhere a line from time to time."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

_LINE_S = 30.0


class RunProgress:
    """Counts what is done; use it as a context manager.

    Args:
        what: name of the things that are counted.
        total: their final number.
        done: their number at the start, which does not count for the pace.
        console: where the progress is shown; standard error by default.
    """

    def __init__(self, what: str, total: int, done: int = 0, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._what, self._total, self._done, self._correct = what, total, done, 0
        self._before, self._began, self._told = done, time.monotonic(), time.monotonic()
        columns = (
            *(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn(what)),
            *(TimeElapsedColumn(), TextColumn("left:"), TimeRemainingColumn()),
        )
        self._bar = Progress(*columns, console=self._console, speed_estimate_period=120.0)
        self._task = self._bar.add_task("bench", total=total, completed=done)

    def note(self, is_correct: bool) -> None:
        """Count one more."""
        self._done += 1
        self._correct += is_correct
        if self._console.is_terminal:
            self._bar.update(self._task, completed=self._done, description=f"{self._correct} correct")
        elif time.monotonic() - self._told > _LINE_S:
            self._told = time.monotonic()
            self._console.print(self.line, highlight=False, soft_wrap=True)

    def shorten(self, turns: int) -> None:
        """Lower the total by `turns`, which will not come."""
        self._total -= turns
        self._bar.update(self._task, total=self._total)

    @property
    def line(self) -> str:
        """Return counts and estimate as a line."""
        pace = (self._done - self._before) / max(time.monotonic() - self._began, 1e-9)
        left = f", about {_duration((self._total - self._done) / pace)} left" if pace else ""
        return f"{self._done} of {self._total} {self._what}, {self._correct} correct{left}"

    def __enter__(self) -> RunProgress:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        if self._console.is_terminal:
            self._bar.stop()


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
