# SPDX-License-Identifier: Apache-2.0
"""Checks the launches of a forward for races, reads of memory that was never written, and accesses beyond views."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from verl_kernel.env.emulator.counts import LaunchCount
from verl_kernel.env.emulator.errors import Fault
from verl_kernel.env.emulator.kernel import Buffer, line_of, unwritten, whole_words
from verl_kernel.env.emulator.races import rehearsal
from verl_kernel.env.emulator.races.detector import Watch
from verl_kernel.env.ipc.execution_messages import Fresh


class MemoryChecks:
    """State of the memory of one forward's launches.

    Args:
        most_bytes: bytes that the watch for races may take in one run.
    """

    def __init__(self, most_bytes: int = 1 << 30) -> None:
        self._most_bytes, self._is_on = most_bytes, False
        self.refuses = False
        """Whether a launch stops when something is found; else it continues, and the findings are recorded."""
        self.not_watched: list[str] = []
        """Races that should have been looked for and were not, or could not be decided, in sentences."""
        self._written: dict[int, np.ndarray] = {}
        """For each allocation of the forward an array with one byte for each of its bytes: 1 where it was written."""

    def begin(self, is_on: bool, refuses: bool) -> None:
        """Begin a forward."""
        self._is_on, self.refuses, self.not_watched = is_on, refuses, []
        self._written.clear()

    def buffers(self, buffers: Sequence[Buffer], fresh: Sequence[Fresh]) -> list[Buffer]:
        """Return a launch's buffers, with pointers to what is known to be written.

        Args:
            buffers: the launch's buffers.
            fresh: the runner's statements about buffers that were allocated without values.

        Raises:
            LookupError, ValueError, TypeError: a statement is impossible.
        """
        marked = list(buffers)
        for number, allocation, runs in fresh if self._is_on else ():
            written = self._written.setdefault(allocation, np.zeros(marked[number].bytes, np.uint8))
            for start, stop in runs:
                written[start:stop] = 1
            # Of another length, the runner's statement is about other memory: the buffer counts as written.
            if len(written) == marked[number].bytes:
                marked[number] = replace(marked[number], written=int(written.ctypes.data))
        return marked

    def launch(
        self, run: Callable[..., LaunchCount], buffers: Sequence[Buffer], views: Sequence[Buffer]
    ) -> tuple[LaunchCount, list[Fault]]:
        """Run a launch; returns what it did, and what the checks found.

        Args:
            run: runs it on buffers, and looks for races if it gets a `watch`.
            buffers: the launch's buffers.
            views: the part of each buffer that the tensors given to the launch cover.

        Raises:
            Fault: the launch stopped; if findings are refused, also for a race, or if races could not be looked for.
        """
        if not self._is_on:
            return run(buffers), []
        # Triton loads a scalar in each warp and stores it in one warp: a race between warps that has no effect.
        watch = Watch(self._most_bytes, between_warps=False)
        beyond_views = _beyond_views(run, watch, buffers, views)
        if beyond_views and self.refuses:
            raise beyond_views[0]  # check: access-lies-in-its-view
        count, races = (run(buffers, watch=watch), []) if self.refuses else self._tolerant(run, watch, buffers)
        self.not_watched += [*watch.not_watched, *watch.not_decided]
        if self.refuses and watch.not_watched:
            # check: launch-could-be-watched
            raise Fault("not_watched", f"it could not be watched for {'; nor for '.join(watch.not_watched)}")
        return count, [*beyond_views, *races, *_unwritten(count)]

    def _tolerant(
        self, run: Callable[..., LaunchCount], watch: Watch, buffers: Sequence[Buffer]
    ) -> tuple[LaunchCount, list[Fault]]:
        """Look for races in a run that is undone, then run the launch."""
        ranges = [(item.address, item.bytes) for item in buffers]
        # The marks of written bytes are put back too: else the second run would find everything written.
        ranges += [(item.written, item.bytes) for item in buffers if item.written]
        races: list[Fault] = []
        try:
            with rehearsal.undone(ranges, []):
                races = _faults(lambda: run(buffers, watch=watch), "race")
        except MemoryError:
            watch.note("races: its memory cannot be kept while the launch is run again; make tensors smaller")
        return run(buffers), races


def _beyond_views(
    run: Callable[..., LaunchCount], watch: Watch, buffers: Sequence[Buffer], views: Sequence[Buffer]
) -> list[Fault]:
    """Return accesses beyond a launch's views but inside their storage, found in a run that is undone."""
    if all(view.bytes == item.bytes for view, item in zip(views, buffers, strict=True)):
        return []
    try:
        # Whole words, as far as the emulator lets accesses to these buffers reach.
        with rehearsal.undone([(item.address, item.bytes) for item in whole_words(views)], []):
            faults = _faults(lambda: run(views, follow=None), "out_of_bounds")
    except MemoryError:
        watch.note("accesses beyond views: its memory cannot be kept while it is run twice; make tensors smaller")
        return []
    in_storage = [fault for fault in faults if any(0 <= fault.address - item.address < item.bytes for item in buffers)]
    return [
        Fault("outside_view", f"{fault}, though inside their storage", fault.line, fault.address)
        for fault in in_storage
    ]


def _faults(run: Callable[[], LaunchCount], kind: str) -> list[Fault]:
    """Return the fault that stops a launch, if it is of this kind."""
    try:
        run()
    except Fault as fault:
        return [fault] if fault.kind == kind else []
    return []


def _unwritten(count: LaunchCount) -> list[Fault]:
    return [
        Fault("unwritten", unwritten(count.program, site), line_of(count.program, site.site))
        for site in count.sites
        if site.unwritten
    ]
