# SPDX-License-Identifier: Apache-2.0
"""Hands launches to the process that executes compiled kernels, with the memory that they may touch."""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from triton.runtime.jit import TensorWrapper
from triton.tools.tensor_descriptor import TensorDescriptor

from verl_kernel.env.compilation.description import Unit
from verl_kernel.env.devices.cpu import tables
from verl_kernel.env.devices.cpu.launch_requests import Range
from verl_kernel.env.executor.flow.origins import Kind
from verl_kernel.env.ipc.channel import Channel
from verl_kernel.env.ipc.execution_messages import Fresh, Launch, Launched, LaunchRequest
from verl_kernel.env.ipc.shared_memory import SharedMemory

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
                    pointers=tables.pointers(known, places),
                    fresh=[] if is_tried else told([*places]),
                    views=[_view(views[start, stop], offset - start) for (start, stop), offset in places.items()],
                )
            )
        )
        reply = self.channel.recv()
        if not is_tried:
            self._copy(places, inwards=False)
            if known:
                tables.restore(known, places, reply["base"])
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
