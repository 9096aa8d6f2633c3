# SPDX-License-Identifier: Apache-2.0
"""Rehearses launches: runs them and then restores memory.

Whether accesses are in order is checked for one schedule only: a block that reads a flag without waiting for it may by
luck run after the block that sets it. A second run with the last blocks first gives another schedule. And if the stamps
for all memory would take too many bytes, each run watches one part of it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from verl_kernel.env.emulator.counts import LaunchCount
from verl_kernel.env.emulator.errors import Fault
from verl_kernel.env.emulator.races.detector import Watch
from verl_kernel.env.emulator.races.memory import Ranges

_MAX_COPIED = 256 << 20
"""Bytes up to which a launch's memory is copied to run some of its blocks beforehand."""
WINDOW = 1024
"""Blocks that are reversed together: later blocks may wait for earlier ones, which must therefore have begun."""
Run = Callable[[np.ndarray, Ranges], LaunchCount]
"""Runs blocks in the given order, and looks for races in the given part of memory."""


def backwards(numbers: np.ndarray) -> np.ndarray:
    """Return the numbers of the blocks with each window reversed."""
    parts = [numbers[start : start + WINDOW][::-1] for start in range(0, len(numbers), WINDOW)]
    return np.concatenate(parts) if parts else numbers


class Saved:
    """A copy of memory and arrays as they are now.

    Args:
        ranges: ranges of the memory.
        arrays: arrays to copy in addition.
    """

    def __init__(self, ranges: Ranges, arrays: Sequence[np.ndarray]) -> None:
        self._memory = [(start, ctypes.string_at(start, length)) for start, length in ranges]
        self._arrays = [(array, array.copy()) for array in arrays]

    def put_back(self) -> None:
        """Restore memory and arrays from the copy."""
        for start, data in self._memory:
            ctypes.memmove(start, data, len(data))
        for array, copy in self._arrays:
            array[:] = copy


@contextmanager
def undone(ranges: Ranges, arrays: Sequence[np.ndarray]) -> Iterator[None]:
    """Restore memory and arrays at the end of the `with` statement."""
    saved = Saved(ranges, arrays)
    try:
        yield
    finally:
        saved.put_back()


def beforehand(run: Callable[[], object], ranges: Ranges, arrays: Sequence[np.ndarray]) -> None:
    """Run blocks and undo what they did, if the memory is small enough to be copied."""
    if sum(length for _, length in ranges) <= _MAX_COPIED:
        with undone(ranges, arrays):
            run()


def watched(
    run: Run,
    watch: Watch,
    parts: Sequence[Ranges],
    numbers: np.ndarray,
    *,
    syncs_blocks: bool,
    save: Callable[[], Saved],
) -> LaunchCount:
    """Look for races in each part of memory (raises Fault, as `run` does); only the last run is not undone.

    Args:
        run: runs the launch.
        watch: gets sentences about what could not be watched.
        parts: parts of memory; each has a run.
        numbers: the blocks' numbers, in order.
        syncs_blocks: whether blocks may synchronise; if so, they also run with the last ones first.
        save: copies what the launch may change.
    """
    *earlier_parts, last_part = parts
    if not syncs_blocks and not earlier_parts:
        return run(numbers, last_part)
    try:
        # The kernel's counters are saved too (`Kernel.launch`), so that runs that are undone count nothing.
        saved = save()
    except MemoryError:
        watch.note("races in most of its memory: it cannot be kept while the launch is run again; make tensors smaller")
        return run(numbers, last_part)
    try:
        # First with the last blocks first: a block that reads a flag and does not wait for it runs early.
        for part in parts if syncs_blocks else ():
            _backwards(run, watch, numbers, part, saved)
        for part in earlier_parts:
            run(numbers, part)
            saved.put_back()
    except Fault:
        saved.put_back()
        raise
    del saved  # frees the copy before the last run
    return run(numbers, last_part)


def _backwards(run: Run, watch: Watch, numbers: np.ndarray, part: Ranges, saved: Saved) -> None:
    try:
        run(backwards(numbers), part)
    except Fault as fault:
        # Any other fault may be due to the unusual order alone: no verdict, but a gap in the watch.
        if fault.kind == "race":
            raise
        watch.note(f"races where the last blocks run first: {fault}")
    saved.put_back()
