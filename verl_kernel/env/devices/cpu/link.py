# SPDX-License-Identifier: Apache-2.0
"""Hands launches to the process that executes compiled kernels, with the memory that they may touch."""

from __future__ import annotations

import ctypes
import gc
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from triton.runtime.jit import TensorWrapper
from triton.tools.tensor_descriptor import TensorDescriptor

from verl_kernel.env.compilation.description import Unit
from verl_kernel.env.executor.flow.origins import Kind
from verl_kernel.env.ipc.channel import Channel
from verl_kernel.env.ipc.execution_messages import Fresh, Launch, Launched, LaunchRequest
from verl_kernel.env.ipc.shared_memory import SharedMemory
from verl_kernel.env.tamper.tripwire import WIRE

# What a launch asks for: the sizes of its grid, and tensors whose memory it may touch.


Range = tuple[int, int]
"""First byte and the byte behind the last."""


class Granted:
    """Which memory launches may touch: of the judge's, only the tensors that the program was given."""

    def __init__(self) -> None:
        self._shared: Range = (0, 0)
        self._places: list[Range] = []

    def confine(self, shared: torch.Tensor, given: Iterable[torch.Tensor]) -> None:
        """Of the judge's memory, launches may touch these tensors, each where it was handed over."""
        self._shared, self._places = span(shared), sorted(map(span, given))

    def memory(self, tensor: torch.Tensor) -> Range:
        """What a launch may touch that was given a tensor: its storage; of the judge's memory its place alone."""
        storage = tensor.untyped_storage()
        start = storage.data_ptr()
        if start != self._shared[0]:
            return start, start + storage.nbytes()
        address = tensor.data_ptr()
        return next((place for place in self._places if place[0] <= address < place[1]), (0, 0))


def span(tensor: torch.Tensor) -> Range:
    """The memory between a tensor's first and last element."""
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    start = tensor.data_ptr()
    return start, start + (last + 1) * tensor.element_size() if tensor.numel() else start


def covered(tensors: Iterable[torch.Tensor], ranges: Iterable[Range]) -> dict[Range, Range]:
    """What tensors cover of the memory that a launch may touch: from the first element of any to the last."""
    found: dict[Range, Range] = {}
    for tensor, (low, high) in zip(tensors, ranges, strict=True):
        start, stop = (min(max(end, low), high) for end in span(tensor))
        first, last = found.get((low, high), (start, stop))
        found[low, high] = min(start, first), max(stop, last)
    return found


def tensors_among(arguments: Iterable[Any]) -> list[torch.Tensor]:
    """Tensors among a launch's arguments, those in tuples, wrappers and descriptors too."""
    return [value for value in _leaves(arguments) if isinstance(value, torch.Tensor)]


def grid_sizes(grid: Any) -> tuple[int, ...]:
    """The three sizes of a grid as a program gives it (raises ValueError, TypeError)."""
    sizes = tuple(grid) if isinstance(grid, tuple | list) else (grid,)
    if not 1 <= len(sizes) <= 3:
        raise ValueError(f"a grid has one to three sizes, not {len(sizes)}")
    if not all(hasattr(size, "__index__") for size in sizes):
        raise TypeError(f"a grid holds integers, not {', '.join(type(size).__name__ for size in sizes)}")
    return (*(max(0, operator.index(size)) for size in sizes), *(1,) * (3 - len(sizes)))


def _leaves(arguments: Iterable[Any]) -> Iterator[Any]:
    for value in arguments:
        if isinstance(value, tuple | list):
            yield from _leaves(value)
        else:
            yield value if isinstance(value, torch.Tensor) else getattr(value, "base", value)


# Tables of addresses: tensors of integers through which a launch reaches tensors that are none of its arguments.
#
# Tensors lie elsewhere in the executing process, so addresses in tables are told to it, and become its own for a
# launch.


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


_GAP, _RESIDUE = 4096, 256
"""Bytes between two tensors in the arena; a tensor's address there leaves the same remainder as here."""
Places = dict[Range, int]
"""Where pieces of this process's memory lie in the arena."""


class NotRun(RuntimeError):
    """A launch did not run to its end in the executing process; the judge hears why from there."""


class Link:
    """The link of this process to the executing one.

    Args:
        channel: to it.
        arena: memory that both have.
    """

    def __init__(self, channel: Channel, arena: SharedMemory) -> None:
        self.channel, self.memory = channel, arena.region(0, arena.size)

    def run(
        self, unit: Unit, grid: tuple[int, ...], arguments: Mapping[str, Any], views: Mapping[Range, Range],
        is_tried: bool, kept: list[Kind] | None, known: Sequence[Range] = (),
        told: Callable[[Sequence[Range]], list[Fresh]] = lambda places: [],
    ) -> tuple[Launched, list[Range]]:  # fmt: skip
        """Run a launch there; one that an autotuner tries leaves nothing behind.

        Args:
            unit: its kernel.
            grid: three sizes.
            arguments: those that are no constants, by name.
            views: memory that it may touch, with what the tensors given to it cover of that.
            is_tried: whether an autotuner tries it.
            kept: kinds of stores that happen; all if None.
            known: memory that holds tables of addresses.
            told: says which of these pieces of memory hold bytes that nobody may have written.

        Returns:
            What it did, and the piece of memory that each number there means.

        Raises:
            MemoryError: its tensors do not fit into the memory that is granted.
        """
        places = _places(set(views), len(self.memory))
        place = partial(_offset, places=places)
        values = {name: described(value, place) for name, value in arguments.items()}
        self._copy(places, inwards=True)
        areas = [(offset, stop - start) for (start, stop), offset in places.items()]
        self.channel.send(
            Launch(
                launch=LaunchRequest(
                    unit=unit.to_json(),
                    grid=[*grid],
                    arguments=values,
                    areas=areas,
                    is_tried=is_tried,
                    kept=kept,
                    pointers=pointers(known, places),
                    fresh=[] if is_tried else told([*places]),
                    views=[_view(views[start, stop], offset - start) for (start, stop), offset in places.items()],
                )
            )
        )
        reply = self.channel.recv()
        if not is_tried:
            self._copy(places, inwards=False)
            if known:
                restore(known, places, reply["base"])
        return Launched(failure=reply["failure"], work=reply["work"], base=reply["base"]), list(places)

    def _copy(self, places: Places, inwards: bool) -> None:
        for (start, stop), offset in places.items():
            there = self.memory.data_ptr() + offset
            target, source = (there, start) if inwards else (start, there)
            ctypes.memmove(target, source, stop - start)


def _places(ranges: set[Range], size: int) -> Places:
    places: Places = {}
    end = 0
    for start, stop in sorted(ranges):
        free = end + _GAP
        places[start, stop] = free + (start - free) % _RESIDUE
        end = places[start, stop] + stop - start
    if end + _GAP > size:
        raise MemoryError("the tensors of a launch are larger than the memory that is granted")
    return places


def _view(view: Range, moved: int) -> tuple[int, int]:
    """Its place in the arena, and its length."""
    return view[0] + moved, view[1] - view[0]


def described(value: Any, place: Callable[[torch.Tensor], Any]) -> Any:
    """An argument as JSON.

    Args:
        value: it.
        place: tells where a tensor lies.
    """
    if isinstance(value, TensorDescriptor):
        flags = {"padding": value.padding, "round_f32_to_tf32": value.round_f32_to_tf32}
        shape, strides = (list(map(int, sizes)) for sizes in (value.shape, value.strides))
        return {"descriptor": {"base": described(value.base, place), "shape": shape, "strides": strides, **flags}}
    if isinstance(value, TensorWrapper):
        value = value.base
    if isinstance(value, torch.Tensor):
        return {"tensor": place(value)}
    if isinstance(value, float):
        return {"float": repr(value)}
    if isinstance(value, tuple | list):
        return [described(item, place) for item in value]
    if isinstance(value, bool):
        return value
    return operator.index(value) if hasattr(value, "__index__") else None


def _offset(tensor: torch.Tensor, places: Places) -> int:
    """Of its first element; one that launches may not touch lies before all that they may."""
    address = tensor.data_ptr()
    for (start, stop), offset in places.items():
        if start <= address <= stop:
            return offset + address - start
    return 0
