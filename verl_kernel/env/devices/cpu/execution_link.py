# SPDX-License-Identifier: Apache-2.0
"""Sends launches, with the memory that they may touch, to the process that executes compiled kernels."""

from __future__ import annotations

import gc
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from triton.runtime.jit import TensorWrapper
from triton.tools.tensor_descriptor import TensorDescriptor

from verl_kernel.env.compilation.description import Unit
from verl_kernel.env.devices.cpu.host_bytes import host_bytes
from verl_kernel.env.emulator.flow.origins import Kind
from verl_kernel.env.ipc.channel import Channel
from verl_kernel.env.ipc.execution_messages import Fresh, Launched, LaunchRequest, RunLaunch
from verl_kernel.env.ipc.shared_memory import SharedMemory
from verl_kernel.env.tamper.tripwire import WIRE

# Inputs of a launch: the sizes of its grid, and tensors whose memory it may touch.


Range = tuple[int, int]
"""First byte and end of a range of memory."""


class Granted:
    """Memory that launches may touch; in the judge's shared memory, only the tensors given to the program."""

    def __init__(self) -> None:
        self._shared: Range = (0, 0)
        self._ranges: list[Range] = []

    def confine(self, shared: torch.Tensor, tensors: Iterable[torch.Tensor]) -> None:
        """Restrict launches in the judge's shared memory to these tensors, each at its place."""
        self._shared, self._ranges = span(shared), sorted(map(span, tensors))

    def memory(self, tensor: torch.Tensor) -> Range:
        """Return the memory that a tensor opens to a launch: its storage; in the judge's memory only its place."""
        storage = tensor.untyped_storage()
        start = storage.data_ptr()
        if start != self._shared[0]:
            return start, start + storage.nbytes()
        address = tensor.data_ptr()
        return next((granted for granted in self._ranges if granted[0] <= address < granted[1]), (0, 0))


def span(tensor: torch.Tensor) -> Range:
    """Return the memory from a tensor's first to its last element."""
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    start = tensor.data_ptr()
    return start, start + (last + 1) * tensor.element_size() if tensor.numel() else start


def covered(tensors: Iterable[torch.Tensor], ranges: Iterable[Range]) -> dict[Range, Range]:
    """Return, for each range that a launch may touch, the part from the first to the last element of its tensors."""
    covering: dict[Range, Range] = {}
    for tensor, (low, high) in zip(tensors, ranges, strict=True):
        start, stop = (min(max(end, low), high) for end in span(tensor))
        first, last = covering.get((low, high), (start, stop))
        covering[low, high] = min(start, first), max(stop, last)
    return covering


def tensors_among(arguments: Iterable[Any]) -> list[torch.Tensor]:
    """Return the tensors among a launch's arguments, including those in tuples, wrappers and descriptors."""
    return [value for value in _leaves(arguments) if isinstance(value, torch.Tensor)]


def grid_sizes(grid: Any) -> tuple[int, ...]:
    """Return the three sizes of a program's grid (raises ValueError, TypeError)."""
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


# Tables of addresses: tensors of integers through which a launch reaches tensors that are not among its arguments.
#
# Tensors have other addresses in the executing process, so that process receives the addresses in tables, and
# translates them for the time of a launch.


_INTEGERS = (torch.int64, torch.uint64)
_MOST_BYTES = 64 << 20
"""Tensors larger than this are not tables."""
_LEAST, _END = 1 << 40, 1 << 47
"""Range of the addresses in a process; numbers outside it are not looked up."""
_TENSORS = (torch.Tensor, torch.nn.Parameter)


def tables(tensors: Iterable[torch.Tensor]) -> list[Range]:
    """Return the memory of the tensors that may hold addresses."""
    ranges = [span(tensor) for tensor in tensors if tensor.dtype in _INTEGERS and tensor.numel()]
    return sorted({(start, stop) for start, stop in ranges if stop - start <= _MOST_BYTES and start % 8 == 0})


def reached(tables: Sequence[Range]) -> list[torch.Tensor]:
    """Return the tensors of this process that a word in these tables points into."""
    words = [_likely(_words(table)) for table in tables]
    addresses = np.unique(np.concatenate(words)) if words else np.empty(0, np.uint64)
    return [tensor for tensor in _alive() if _leads_to(addresses, tensor)] if len(addresses) else []


def pointers(tables: Sequence[Range], offsets: Mapping[Range, int]) -> list[tuple[int, int]]:
    """Return offsets in the arena: of each address in a table, and of the memory that it points to.

    Args:
        tables: the tables.
        offsets: offsets in the arena of pieces of this process's memory.
    """
    starts = np.array([start for start, _ in offsets], np.uint64)  # sorted by address
    moved = [(start, stop, offset) for (start, stop), offset in offsets.items()]
    pairs = []
    for table in tables:
        words = _words(table)
        likely = np.flatnonzero((words >= _LEAST) & (words < _END))
        for number, index in zip(likely, np.searchsorted(starts, words[likely], "right") - 1, strict=True):
            start, stop, offset = moved[index] if index >= 0 else (0, 0, 0)
            if start <= (address := int(words[number])) < stop:
                pairs.append((_moved(table[0] + 8 * int(number), offsets), offset + address - start))
    return pairs


def restore(tables: Sequence[Range], offsets: Mapping[Range, int], base: int) -> None:
    """Translate addresses that the executing process left in tables back to addresses of this process.

    Args:
        tables: the tables.
        offsets: offsets in the arena of pieces of this process's memory.
        base: address of the arena in the executing process.
    """
    ends = [(base + offset, base + offset + stop - start, start) for (start, stop), offset in offsets.items()]
    low, high = min(first for first, _, _ in ends), max(last for _, last, _ in ends)
    for table in tables:
        words = _words(table)
        inside = np.flatnonzero((words >= low) & (words < high))
        for number in inside:
            address = int(words[number])
            words[number] = next((s + address - first for first, last, s in ends if first <= address < last), address)
        if len(inside):
            host_bytes(table[0], words.nbytes)[:] = words.view(np.uint8)


def _words(table: Range) -> np.ndarray:
    words: np.ndarray = host_bytes(table[0], (table[1] - table[0]) // 8 * 8).copy().view(np.uint64)
    return words


def _likely(words: np.ndarray) -> np.ndarray:
    return words[(words >= _LEAST) & (words < _END)]


def _alive() -> list[torch.Tensor]:
    """Return all living tensors with memory in this process."""
    watching, WIRE.watching = WIRE.watching, False  # this walk over all objects is not the program's
    try:
        tensors = [item for item in gc.get_objects() if type(item) in _TENSORS]
    finally:
        WIRE.watching = watching
    return [item for item in tensors if item.layout is torch.strided and item.device.type == "cpu" and item.numel()]


def _leads_to(addresses: np.ndarray, tensor: torch.Tensor) -> bool:
    start, stop = span(tensor)
    first = int(np.searchsorted(addresses, np.uint64(start)))
    return first < len(addresses) and int(addresses[first]) < stop


def _moved(address: int, offsets: Mapping[Range, int]) -> int:
    return next(offset + address - start for (start, stop), offset in offsets.items() if start <= address < stop)


_GAP, _RESIDUE = 4096, 256
"""Bytes between two tensors in the arena, and the modulus in which a tensor's address keeps its remainder there."""
Places = dict[Range, int]
"""Offsets in the arena of pieces of this process's memory."""


class NotRun(RuntimeError):
    """A launch did not run to its end in the executing process, which reports the reason to the judge."""


class Link:
    """The link from this process to the executing process.

    Args:
        channel: channel to the executing process.
        arena: memory shared by both processes.
    """

    def __init__(self, channel: Channel, arena: SharedMemory) -> None:
        self.channel, self.memory = channel, arena.region(0, arena.size)

    def run(
        self,
        unit: Unit,
        *,
        grid: tuple[int, ...],
        arguments: Mapping[str, Any],
        views: Mapping[Range, Range],
        is_tried: bool,
        kept_kinds: list[Kind] | None,
        tables: Sequence[Range] = (),
        fresh_areas: Callable[[Sequence[Range]], list[Fresh]] = lambda areas: [],
    ) -> tuple[Launched, list[Range]]:
        """Run a launch in the executing process; a launch that an autotuner tries does not change tensors.

        Args:
            unit: description of the kernel.
            grid: three sizes.
            arguments: arguments that are not constants, by name.
            views: memory that the launch may touch, with the part of it that its tensors cover.
            is_tried: whether an autotuner tries the launch.
            kept_kinds: kinds of stores that happen; all if None.
            tables: memory that holds tables of addresses.
            fresh_areas: returns which of these pieces of memory were allocated without values (`Allocations.report`).

        Returns:
            The result of the launch, and the pieces of memory by the numbers that the result uses.

        Raises:
            MemoryError: the tensors do not fit into the granted memory.
        """
        offsets = _places(set(views), len(self.memory))
        offset_of = partial(_offset, offsets=offsets)
        values = {name: described(value, offset_of) for name, value in arguments.items()}
        self._copy(offsets, inwards=True)
        areas = [(offset, stop - start) for (start, stop), offset in offsets.items()]
        self.channel.send(
            RunLaunch(
                launch=LaunchRequest(
                    unit=unit.to_json(),
                    grid=[*grid],
                    arguments=values,
                    areas=areas,
                    is_tried=is_tried,
                    kept=kept_kinds,
                    pointers=pointers(tables, offsets),
                    fresh=[] if is_tried else fresh_areas([*offsets]),
                    views=[_view(views[start, stop], offset - start) for (start, stop), offset in offsets.items()],
                )
            )
        )
        reply = cast(Launched, self.channel.recv())
        if not is_tried:
            self._copy(offsets, inwards=False)
            if tables:
                restore(tables, offsets, reply["base"])
        return reply, list(offsets)

    def _copy(self, offsets: Places, inwards: bool) -> None:
        for (start, stop), offset in offsets.items():
            there = self.memory.data_ptr() + offset
            target, source = (there, start) if inwards else (start, there)
            host_bytes(target, stop - start)[:] = host_bytes(source, stop - start)


def _places(ranges: set[Range], size: int) -> Places:
    offsets: Places = {}
    end = 0
    for start, stop in sorted(ranges):
        free = end + _GAP
        offsets[start, stop] = free + (start - free) % _RESIDUE
        end = offsets[start, stop] + stop - start
    if end + _GAP > size:
        raise MemoryError("the tensors of a launch are larger than the memory that is granted")
    return offsets


def _view(view: Range, moved: int) -> tuple[int, int]:
    """Return the place of a view in the arena, and its length."""
    return view[0] + moved, view[1] - view[0]


def described(value: Any, offset_of: Callable[[torch.Tensor], Any]) -> Any:
    """Convert an argument to JSON.

    Args:
        value: the argument.
        offset_of: returns the place of a tensor.
    """
    if isinstance(value, TensorDescriptor):
        flags = {"padding": value.padding, "round_f32_to_tf32": value.round_f32_to_tf32}
        shape, strides = (list(map(int, sizes)) for sizes in (value.shape, value.strides))
        return {"descriptor": {"base": described(value.base, offset_of), "shape": shape, "strides": strides, **flags}}
    if isinstance(value, TensorWrapper):
        value = value.base
    if isinstance(value, torch.Tensor):
        return {"tensor": offset_of(value)}
    if isinstance(value, float):
        return {"float": repr(value)}
    if isinstance(value, tuple | list):
        return [described(item, offset_of) for item in value]
    if isinstance(value, bool):
        return value
    return operator.index(value) if hasattr(value, "__index__") else None


def _offset(tensor: torch.Tensor, offsets: Places) -> int:
    """Return the arena offset of a tensor's first element; 0, below all places, if launches may not touch it."""
    address = tensor.data_ptr()
    for (start, stop), offset in offsets.items():
        if start <= address <= stop:
            return offset + address - start
    return 0
