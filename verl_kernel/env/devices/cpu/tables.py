# SPDX-License-Identifier: Apache-2.0
"""Tables of addresses: tensors of integers through which a launch reaches tensors that are none of its arguments.

Tensors lie elsewhere in the executing process, so addresses in tables are told to it, and become its own for a launch.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch

from verl_kernel.env.devices.cpu.launch_requests import Range, span
from verl_kernel.env.tamper.tripwire import WIRE

_INTEGERS = (torch.int64, torch.uint64)
_MOST_BYTES = 64 << 20
"""Larger tensors are no tables."""
_LEAST, _END = 1 << 40, 1 << 47
"""Where the addresses of a process's memory lie; numbers outside of it need no look at anything."""
_TENSORS = (torch.Tensor, torch.nn.Parameter)


def tables(tensors: Iterable[torch.Tensor]) -> list[Range]:
    """The memory of those that may hold addresses."""
    found = [span(tensor) for tensor in tensors if tensor.dtype in _INTEGERS and tensor.numel()]
    return sorted({(start, stop) for start, stop in found if stop - start <= _MOST_BYTES and start % 8 == 0})


def reached(known: Sequence[Range]) -> list[torch.Tensor]:
    """Tensors of this process that some word of these tables leads to."""
    words = [_likely(_words(table)) for table in known]
    addresses = np.unique(np.concatenate(words)) if words else np.empty(0, np.uint64)
    return [tensor for tensor in _alive() if _leads_to(addresses, tensor)] if len(addresses) else []


def pointers(known: Sequence[Range], places: Mapping[Range, int]) -> list[tuple[int, int]]:
    """Where addresses lie in the arena, and where in it what they lead to.

    Args:
        known: the tables.
        places: where pieces of this process's memory lie in the arena.
    """
    starts = np.array([start for start, _ in places], np.uint64)  # in order of their addresses
    moved = [(start, stop, offset) for (start, stop), offset in places.items()]
    found = []
    for table in known:
        words = _words(table)
        likely = np.flatnonzero((words >= _LEAST) & (words < _END))
        for number, place in zip(likely, np.searchsorted(starts, words[likely], "right") - 1, strict=True):
            start, stop, offset = moved[place] if place >= 0 else (0, 0, 0)
            if start <= (address := int(words[number])) < stop:
                found.append((_moved(table[0] + 8 * int(number), places), offset + address - start))
    return found


def restore(known: Sequence[Range], places: Mapping[Range, int], base: int) -> None:
    """Addresses that the executing process left in tables become this process's again.

    Args:
        known: the tables.
        places: where pieces of this process's memory lie in the arena.
        base: where the arena lies in the executing process.
    """
    ends = [(base + offset, base + offset + stop - start, start) for (start, stop), offset in places.items()]
    low, high = min(first for first, _, _ in ends), max(last for _, last, _ in ends)
    for table in known:
        words = _words(table)
        inside = np.flatnonzero((words >= low) & (words < high))
        for number in inside:
            address = int(words[number])
            words[number] = next((s + address - first for first, last, s in ends if first <= address < last), address)
        if len(inside):
            ctypes.memmove(table[0], words.ctypes.data, words.nbytes)


def _words(table: Range) -> np.ndarray:
    words = np.empty((table[1] - table[0]) // 8, np.uint64)
    ctypes.memmove(words.ctypes.data, table[0], words.nbytes)
    return words


def _likely(words: np.ndarray) -> np.ndarray:
    return words[(words >= _LEAST) & (words < _END)]


def _alive() -> list[torch.Tensor]:
    """All tensors with memory that this process has made and still holds."""
    watching, WIRE.watching = WIRE.watching, False  # it is not the program that walks over all objects
    try:
        found = [item for item in gc.get_objects() if type(item) in _TENSORS]
    finally:
        WIRE.watching = watching
    return [item for item in found if item.layout is torch.strided and item.device.type == "cpu" and item.numel()]


def _leads_to(addresses: np.ndarray, tensor: torch.Tensor) -> bool:
    start, stop = span(tensor)
    first = int(np.searchsorted(addresses, np.uint64(start)))
    return first < len(addresses) and int(addresses[first]) < stop


def _moved(address: int, places: Mapping[Range, int]) -> int:
    return next(offset + address - start for (start, stop), offset in places.items() if start <= address < stop)
