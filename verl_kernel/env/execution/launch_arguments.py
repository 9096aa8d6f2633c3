# SPDX-License-Identifier: Apache-2.0
"""Converts a launch's arguments from a request's JSON to a kernel's parameters."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from verl_kernel.env.emulator.copy_stores import WIDTHS
from verl_kernel.env.emulator.driver import encoded, flattened
from verl_kernel.env.emulator.kernel import Buffer


class Arena:
    """A mapping of the arena, in which a runner passes tensors to this process, which has no torch.

    Args:
        fd: the descriptor of the arena's memory.
        size: the arena's bytes.
    """

    def __init__(self, fd: int, size: int) -> None:
        self._hold(mmap.mmap(fd, size))

    def _hold(self, memory: mmap.mmap) -> None:
        self._bytes = np.frombuffer(memory, np.uint8)
        self.bytes = len(self._bytes)
        self._start = int(self._bytes.ctypes.data)

    def address(self, offset: int, length: int) -> int:
        """Return the address of a piece in this process.

        Raises:
            ValueError: the piece does not lie in the arena.
        """
        if type(offset) is not int or type(length) is not int or min(offset, length) < 0:
            # check: arena-piece-has-numbers
            raise ValueError("a piece of the arena has a place and a length of at least 0")
        if offset + length > len(self._bytes):
            raise ValueError("a piece lies outside of the arena")  # check: arena-piece-lies-inside
        return self._start + offset

    def point(self, pointers: Iterable[Sequence[int]]) -> None:
        """Write addresses into tables.

        Args:
            pointers: offsets of words, and of the places whose addresses are written there (raises ValueError as
                `address` does).
        """
        for word, target in pointers:
            ctypes.c_int64.from_address(self.address(word, 8)).value = self.address(target, 0)


class ArenaCopy(Arena):
    """Memory of this process alone, which holds copies of some areas of an arena.

    Args:
        arena: the arena.
        areas: offset and length of each area.

    Raises:
        ValueError: an area does not lie in the arena.
    """

    def __init__(self, arena: Arena, areas: Sequence[tuple[int, int]]) -> None:
        pieces = [(arena.address(offset, length), offset, length) for offset, length in areas]
        # Pieces keep their offsets, so a request reads the same in the copy; untouched pages take no memory.
        self._hold(mmap.mmap(-1, 1 + max((offset + length for offset, length in areas), default=0)))
        for address, offset, length in pieces:
            ctypes.memmove(self.address(offset, length), address, length)


_FAR_BYTES = 1 << 30
"""An address at least this many bytes from a tensor is not described by that tensor."""


class _Pointer:
    """The address of a tensor's first element."""

    def __init__(self, address: int) -> None:
        self._address = address

    def data_ptr(self) -> int:
        """Return the address."""
        return self._address


def words(signature: Mapping[str, Any], arguments: Mapping[str, Any], arena: Arena) -> list[Any]:
    """Return the values of the kernel's parameters.

    Args:
        signature: types of the parameters, by name, as Triton names them.
        arguments: the request's arguments.
        arena: the arena that holds the tensors.
    """
    flat = [encoded(kind, value) for _, kind, value in _flat(signature, arguments, arena)]
    return [value.data_ptr() if isinstance(value, _Pointer) else value or 0 for value in flat]


def nearest(
    signature: Mapping[str, Any], arguments: Mapping[str, Any], arena: Arena, buffers: Sequence[Buffer], address: int
) -> str:
    """Describe the element and tensor at an address; "" far from all tensors (other arguments as of `words`)."""
    distances = [
        (_distance(address, buffer), name, address - pointer.data_ptr(), _element(kind or str(parameter_type)))
        for name, parameter_type in signature.items()
        for kind, pointer in flattened(parameter_type, _value(arguments[name], arena) if name in arguments else None)
        if isinstance(pointer, _Pointer)
        for buffer in buffers
        if buffer.address <= pointer.data_ptr() <= buffer.address + buffer.bytes
    ]
    distance, name, offset, kind = min(distances, default=(_FAR_BYTES, "", 0, ""))
    return "" if distance >= _FAR_BYTES else f"element {offset // WIDTHS.get(kind, 1)} of {name}"


def views(ranges: Sequence[Sequence[int]], arena: Arena, buffers: Sequence[Buffer]) -> list[Buffer]:
    """Return the part of each buffer that the tensors given to the launch cover.

    Args:
        ranges: offset and length of each part.
        arena: the arena that holds the tensors.
        buffers: the buffers, in the same order.

    Raises:
        ValueError, TypeError: a part does not lie in its buffer.
    """
    parts = [
        replace(item, address=arena.address(*view), bytes=view[1], written=0)
        for view, item in zip(ranges, buffers, strict=True)
    ]
    if any(
        view.address < item.address or view.address + view.bytes > item.address + item.bytes
        for view, item in zip(parts, buffers, strict=True)
    ):
        raise ValueError("a view does not lie in its storage")  # check: view-lies-in-its-storage
    return parts


def _distance(address: int, buffer: Buffer) -> int:
    """Return the bytes between an address and a buffer; 0 if the address lies in the buffer."""
    return max(buffer.address - address, address - buffer.address - buffer.bytes, 0)


def kinds(
    signature: Mapping[str, Any], arguments: Mapping[str, Any], arena: Arena, buffers: Sequence[Buffer]
) -> list[str]:
    """Return the types of each buffer's elements; "" where they differ (other arguments as of `words`)."""
    named = [
        (item.data_ptr(), _element(kind or str(parameter_type)))
        for parameter_type, kind, item in _flat(signature, arguments, arena)
        if isinstance(item, _Pointer)
    ]
    kinds_of_buffers = [
        {kind for address, kind in named if item.address <= address <= item.address + item.bytes} for item in buffers
    ]
    return [element_kinds.pop() if len(element_kinds) == 1 else "" for element_kinds in kinds_of_buffers]


def _flat(signature: Mapping[str, Any], arguments: Mapping[str, Any], arena: Arena) -> Iterator[tuple[Any, str, Any]]:
    for name, parameter_type in signature.items():
        for kind, item in flattened(parameter_type, _value(arguments[name], arena) if name in arguments else None):
            yield parameter_type, kind, item


def _element(kind: str) -> str:
    """Return the element type of a pointer or descriptor type."""
    return kind.removeprefix("tensordesc<").removeprefix("*").removeprefix("k").partition("[")[0]


def _value(argument: Any, arena: Arena) -> Any:
    """Return an argument as Triton's launcher would get it."""
    if isinstance(argument, list):
        return tuple(_value(item, arena) for item in argument)
    if not isinstance(argument, Mapping):
        return argument
    ((kind, content),) = argument.items()
    if kind == "float":
        return float(content)
    if kind == "tensor":
        return _Pointer(arena.address(content, 0))
    if kind == "descriptor":
        return SimpleNamespace(**{**content, "base": _value(content["base"], arena)})
    raise ValueError(f"an argument of the unknown kind {kind!r}")  # check: argument-has-a-known-kind
