# SPDX-License-Identifier: Apache-2.0
"""The memory in which a runner hands tensors to the process that executes its kernels."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterable, Sequence

import numpy as np


class Arena:
    """A mapping of it, in a process without torch.

    Args:
        fd: the memory's descriptor.
        size: its bytes.
    """

    def __init__(self, fd: int, size: int) -> None:
        self._hold(mmap.mmap(fd, size))

    def _hold(self, memory: mmap.mmap) -> None:
        self._bytes = np.frombuffer(memory, np.uint8)
        self.bytes = len(self._bytes)
        self._start = int(self._bytes.ctypes.data)

    def address(self, offset: int, length: int) -> int:
        """Where a piece lies here.

        Raises:
            ValueError: it does not lie in the arena.
        """
        if type(offset) is not int or type(length) is not int or min(offset, length) < 0:
            raise ValueError("a piece of the arena has a place and a length of at least 0")
        if offset + length > len(self._bytes):
            raise ValueError("a piece lies outside of the arena")
        return self._start + offset

    def point(self, pointers: Iterable[Sequence[int]]) -> None:
        """Write addresses into tables.

        Args:
            pointers: places of words, and of what they shall lead to (raises ValueError as `address` does).
        """
        for word, target in pointers:
            ctypes.c_int64.from_address(self.address(word, 8)).value = self.address(target, 0)


class Copy(Arena):
    """Memory of this process alone, which holds the same in some areas of an arena.

    Args:
        arena: it.
        areas: offset and length of each.

    Raises:
        ValueError: an area does not lie in the arena.
    """

    def __init__(self, arena: Arena, areas: Sequence[tuple[int, int]]) -> None:
        places = [(arena.address(offset, length), offset, length) for offset, length in areas]
        self._hold(mmap.mmap(-1, 1 + max((offset + length for offset, length in areas), default=0)))
        for address, offset, length in places:
            ctypes.memmove(self.address(offset, length), address, length)
