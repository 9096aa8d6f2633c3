# SPDX-License-Identifier: Apache-2.0
"""A launch run backwards before it is run.

Which accesses are in order is found for one schedule only: a block that looks at a flag and does not wait for it may
come after the one that sets it by luck. With the last blocks first, its luck is another one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

_MOST = 256 << 20
WINDOW = 1024
"""Blocks that are turned round together: earlier ones must have begun where later ones wait for them."""


def backwards(numbers: np.ndarray) -> np.ndarray:
    """Blocks of each window, the last first."""
    parts = [numbers[start : start + WINDOW][::-1] for start in range(0, len(numbers), WINDOW)]
    return np.concatenate(parts) if parts else numbers


def fits(ranges: Sequence[tuple[int, int]]) -> bool:
    """Whether memory is small enough to be put back after blocks were followed beforehand."""
    return sum(length for _, length in ranges) <= _MOST


@contextmanager
def undone(ranges: Sequence[tuple[int, int]], arrays: Sequence[np.ndarray]) -> Iterator[None]:
    """Put back memory (addresses and lengths) and arrays as they were."""
    saved = [ctypes.string_at(start, length) for start, length in ranges]
    copies = [array.copy() for array in arrays]
    try:
        yield
    finally:
        for (start, length), data in zip(ranges, saved, strict=True):
            ctypes.memmove(start, data, length)
        for array, copy in zip(arrays, copies, strict=True):
            array[:] = copy
