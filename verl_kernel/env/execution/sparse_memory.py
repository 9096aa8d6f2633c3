# SPDX-License-Identifier: Apache-2.0
"""Memory for tensors of any size: each is one template mapped repeatedly, so that inputs take no memory.

Writes to a tensor without data change its template, which is restored afterwards: so a kernel cannot make memory grow.
Addresses are reserved before the process is jailed; its limit of addresses holds for everything else. Tensors that have
data lie in a private mapping of the arena.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Collection
from typing import Any

import numpy as np

from verl_kernel.env.sandbox.libc import LIBC, refusal

# Bytes used in place of those of tensors without data: plausible values, repeated.


BYTES = 4 << 20
"""Bytes of a template, which is mapped until it covers the tensor."""
_BELOW = 8
"""Whole numbers are below this one: as indices they lie inside of nearly any tensor."""
_FLOATS = {"float16": np.float16, "float32": np.float32, "float64": np.float64}
_WHOLE = {
    "int8": np.int8,
    "uint8": np.uint8,
    "int16": np.int16,
    "uint16": np.uint16,
    "int32": np.int32,
    "uint32": np.uint32,
    "int64": np.int64,
    "uint64": np.uint64,
}


def is_whole(dtype: str) -> bool:
    """Whether elements are whole numbers, which may be indices into other tensors."""
    return dtype in _WHOLE


def template(dtype: str, random: np.random.Generator) -> np.ndarray:
    """Return the bytes of a template.

    Args:
        dtype: name of torch's type of the elements.
        random: draws values.
    """
    return np.ascontiguousarray(_values(dtype, random)).view(np.uint8)[:BYTES]


def _values(dtype: str, random: np.random.Generator) -> np.ndarray:
    """Draw values: about standard normal; small whole numbers from 0 on; booleans of equal probability."""
    if dtype == "bool":
        return random.integers(0, 2, BYTES, np.uint8)
    if (whole := _WHOLE.get(dtype)) is not None:
        return random.integers(0, _BELOW, BYTES // np.dtype(whole).itemsize).astype(whole)
    if dtype.startswith("float8"):  # exponents near that of 1
        middle, width = (15 << 2, 2) if "e5m2" in dtype else (7 << 3, 3)
        low = random.integers(middle - (1 << width), middle + (1 << width), BYTES, np.int16)
        narrow: np.ndarray = (low | random.integers(0, 2, BYTES, np.int16) << 7).astype(np.uint8)
        return narrow
    normal = random.standard_normal(BYTES // 4).astype(np.float32)
    if dtype == "bfloat16":
        return np.tile((normal.view(np.uint32) >> 16).astype(np.uint16), 2)  # the upper half of a float32
    kind: Any = _FLOATS.get(dtype, np.float32)
    return np.tile(normal, 2).astype(kind)


_RESERVED = 1 << 45
"""Bytes of reserved addresses."""
_GAP = 32 << 30
"""Bytes between tensors: more than an overflowing 32-bit offset reaches with elements of 8 bytes, so that it meets no
other tensor."""
_MOST_TENSORS = 48
"""How many tensors are mapped at a time; each has a template of its own."""
_MOST_MAPPINGS = 40_000
"""Mappings of this process, of which Linux allows 65,530 (`vm.max_map_count`)."""
# Flags of mmap(2), mprotect(2) and madvise(2) on Linux for x86-64; Python's `mmap` cannot map at a given address.
_SHARED, _PRIVATE, _FIXED, _ANONYMOUS, _NO_RESERVE = 0x01, 0x02, 0x10, 0x20, 0x4000
_NONE, _READ_WRITE, _DONT_NEED = 0, 3, 4
_MMAP = ctypes.CFUNCTYPE(*[ctypes.c_size_t] * 3, *[ctypes.c_int] * 3, ctypes.c_size_t, use_errno=True)(("mmap", LIBC))
Tensor = tuple[int, int, str]
"""A tensor without data: its address in the request, its bytes, the type of its elements."""


class SparseMemory:
    """Addresses of this process for tensors without data; it is made before the process is jailed.

    Args:
        arena: descriptor of the memory that holds tensors with data.
        arena_bytes: the arena's size.
    """

    def __init__(self, arena: int, arena_bytes: int) -> None:
        self.fd = os.memfd_create("templates")
        """Descriptor of the templates; it must stay open in this process."""
        os.ftruncate(self.fd, _MOST_TENSORS * BYTES)
        self._bytes = np.frombuffer(mmap.mmap(self.fd, _MOST_TENSORS * BYTES), np.uint8).reshape(_MOST_TENSORS, BYTES)
        self._addresses: dict[Tensor, int] = {}
        self._random, self._templates = np.random.default_rng(0), dict[str, np.ndarray]()
        self._start = self._arena_bytes = self._next = 0
        self.clearings = 0
        """How often all tensors without data were unmapped to free addresses."""
        try:
            self._start = _map(0, _RESERVED, _NONE, _PRIVATE | _ANONYMOUS | _NO_RESERVE)
            _map(self._start, arena_bytes, _READ_WRITE, _PRIVATE | _FIXED | _NO_RESERVE, fd=arena)
        except OSError:  # addresses are limited: tensors without data will be refused
            return
        self._arena_bytes = arena_bytes
        self._first = self._next = self._start + -(-(arena_bytes + _GAP) // BYTES) * BYTES

    def begin(self, seed: int) -> None:
        """Draw values from a seed from now on, and unmap all tensors without data."""
        self._random, self._templates = np.random.default_rng(seed), {}
        self._clear()

    def arena_address(self, offset: int, length: int) -> int:
        """Return the address of a piece of the arena.

        Raises:
            ValueError: the piece does not lie in the arena.
        """
        if min(offset, length) < 0 or offset + length > self._arena_bytes:
            raise ValueError("a piece lies outside of the arena")  # check: sparse-piece-lies-inside
        return self._start + offset

    def tensor_address(self, tensor: Tensor) -> int:
        """Return the address of a tensor without data, always the same, and with the same offset in its page.

        Raises:
            MemoryError: the process cannot address the tensor.
        """
        if tensor not in self._addresses:
            self._addresses[tensor] = self._mapped(*tensor)
        return self._addresses[tensor]

    def restore(self, written: Collection[Tensor]) -> None:
        """Restore the templates of tensors that a kernel may have written, and the contents of the arena."""
        for number, tensor in enumerate(self._addresses):
            if tensor in written:
                self._bytes[number] = self._template(tensor[2])
        # Private pages that were written are dropped: the next access reads the arena again.
        LIBC.madvise(ctypes.c_size_t(self._start), ctypes.c_size_t(self._arena_bytes), _DONT_NEED)

    def give_back(self) -> None:
        """Release the memory of page tables."""
        for (_, length, _), address in self._addresses.items():
            start = address - address % mmap.PAGESIZE
            LIBC.madvise(ctypes.c_size_t(start), ctypes.c_size_t(address + length - start), _DONT_NEED)

    def close(self) -> None:
        """Release the addresses."""
        if self._start:
            LIBC.munmap(ctypes.c_size_t(self._start), ctypes.c_size_t(_RESERVED))
        self._start = self._arena_bytes = 0
        os.close(self.fd)

    def _template(self, dtype: str) -> np.ndarray:
        if dtype not in self._templates:
            self._templates[dtype] = template(dtype, self._random)
        return self._templates[dtype]

    def _mapped(self, address: int, length: int, dtype: str) -> int:
        remainder = address % mmap.PAGESIZE
        windows = -(-(remainder + length) // BYTES)
        mappings = sum(length // BYTES + 1 for _, length, _ in self._addresses)
        is_full = len(self._addresses) == _MOST_TENSORS or mappings + windows > _MOST_MAPPINGS
        if is_full or self._next + windows * BYTES > self._start + _RESERVED:
            self._clear()
        if not self._arena_bytes or windows > _MOST_MAPPINGS:
            # check: sparse-tensors-fit
            raise MemoryError("the tensors of a launch are larger than this process can address")
        start, number = self._next, len(self._addresses)
        self._bytes[number] = self._template(dtype)
        for window in range(start, start + windows * BYTES, BYTES):
            _map(window, BYTES, _READ_WRITE, _SHARED | _FIXED | _NO_RESERVE, fd=self.fd, offset=number * BYTES)
        self._next = start + windows * BYTES + _GAP
        return start + remainder

    def _clear(self) -> None:
        """Unmap all tensors without data; those of the launch being prepared are mapped again when requested."""
        if self._arena_bytes and self._next > self._first:
            length = self._next - self._first
            _map(self._first, length, _NONE, _PRIVATE | _FIXED | _ANONYMOUS | _NO_RESERVE)
            self._next = self._first
        self._addresses.clear()
        self.clearings += 1


def _map(address: int, length: int, access: int, flags: int, *, fd: int = -1, offset: int = 0) -> int:
    mapped = int(_MMAP(address, length, access, flags, fd, offset))
    if mapped == ctypes.c_size_t(-1).value:
        raise refusal("mmap")
    return mapped
