# SPDX-License-Identifier: Apache-2.0
"""Runs of a launch of which nothing stays.

Which accesses are in order is found for one schedule only: a block that looks at a flag and does not wait for it may
come after the one that sets it by luck. With the last blocks first, its luck is another one. And where the bookkeeping
of all memory takes too many bytes, each run looks at a part of it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from verl_kernel.env.executor.counts import LaunchCount
from verl_kernel.env.executor.errors import Fault
from verl_kernel.env.executor.races.memory import Ranges
from verl_kernel.env.executor.races.watch import Watch

_MOST = 256 << 20
WINDOW = 1024
"""Blocks that are turned round together: earlier ones must have begun where later ones wait for them."""
Run = Callable[[np.ndarray, Ranges], LaunchCount]
"""Runs blocks in this order, and looks for races in this part of memory."""


def backwards(numbers: np.ndarray) -> np.ndarray:
    """Blocks of each window, the last first."""
    parts = [numbers[start : start + WINDOW][::-1] for start in range(0, len(numbers), WINDOW)]
    return np.concatenate(parts) if parts else numbers


class Saved:
    """Memory and arrays as they are now.

    Args:
        ranges: of the memory.
        arrays: beside it.
    """

    def __init__(self, ranges: Ranges, arrays: Sequence[np.ndarray]) -> None:
        self._memory = [(start, ctypes.string_at(start, length)) for start, length in ranges]
        self._arrays = [(array, array.copy()) for array in arrays]

    def put_back(self) -> None:
        """Make them so again."""
        for start, data in self._memory:
            ctypes.memmove(start, data, len(data))
        for array, copy in self._arrays:
            array[:] = copy


@contextmanager
def undone(ranges: Ranges, arrays: Sequence[np.ndarray]) -> Iterator[None]:
    """Put back memory and arrays as they were."""
    saved = Saved(ranges, arrays)
    try:
        yield
    finally:
        saved.put_back()


def beforehand(run: Callable[[], object], ranges: Ranges, arrays: Sequence[np.ndarray]) -> None:
    """Run blocks of which nothing stays, if memory is small enough."""
    if sum(length for _, length in ranges) <= _MOST:
        with undone(ranges, arrays):
            run()


def watched(
    run: Run, watch: Watch, parts: Sequence[Ranges], numbers: np.ndarray, learns: bool,
    save: Callable[[], Saved],
) -> LaunchCount:  # fmt: skip
    """Look for races in each part of memory (raises Fault, as `run` does); only the last run stays.

    Args:
        run: runs the launch.
        watch: is told what could not be watched.
        parts: of memory, one run for each.
        numbers: of the blocks, in order.
        learns: whether blocks may learn of each other: then they also run with the last ones first.
        save: keeps what the launch may change.
    """
    *others, last = parts
    if not learns and not others:
        return run(numbers, last)
    try:
        saved = save()
    except MemoryError:
        watch.note("races in most of its memory: it cannot be kept while the launch is run again; make tensors smaller")
        return run(numbers, last)
    try:
        for part in parts if learns else ():
            _backwards(run, watch, numbers, part, saved)
        for part in others:
            run(numbers, part)
            saved.put_back()
    except Fault:
        saved.put_back()
        raise
    del saved
    return run(numbers, last)


def _backwards(run: Run, watch: Watch, numbers: np.ndarray, part: Ranges, saved: Saved) -> None:
    try:
        run(backwards(numbers), part)
    except Fault as fault:
        if fault.kind == "race":
            raise
        watch.note(f"races where the last blocks run first: {fault}")
    saved.put_back()
