# SPDX-License-Identifier: Apache-2.0
"""Loads and stores of launches without data: counted and checked like any, but nothing is written.

What is loaded from a tensor without data is unknown. What a kernel stores to a tensor that has data makes that
unknown, too. Where an address comes from a loaded value its lanes count as neighbours in the tensor that they start
from; where a mask does, all its lanes count that lie in the launch's tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle, _get_np_dtype

from verl_kernel.env.devices.cpu.counting import STATE
from verl_kernel.env.true_size.dataless import AddressSpace
from verl_kernel.env.true_size.kernels.loops import Loops
from verl_kernel.env.true_size.kernels.unknowns import is_unknown, mark

Array = np.ndarray[Any, Any]


class DryMemory:
    """What the launches of this process load from and store to.

    Args:
        space: of tensors without data.
        loops: their counters.
    """

    def __init__(self, space: AddressSpace, loops: Loops) -> None:
        self._space, self._loops = space, loops
        self._is_unknown = False
        """Whether the latest load found no data."""
        self._is_placed = True
        """Whether the latest access was to known places."""
        self._tensors: list[tuple[int, int, str]] = []

    def install(self) -> None:
        """Put it in the place of the interpreter's own access to memory (once per process)."""
        interpreter._interpreter = _Access(interpreter._interpreter, self)
        InterpreterBuilder.create_masked_load = self._loading(InterpreterBuilder.create_masked_load)
        for name, mask_at in (("create_masked_store", 2), ("create_atomic_rmw", 3), ("create_atomic_cas", None)):
            original = getattr(InterpreterBuilder, name)
            setattr(InterpreterBuilder, name, self._writing(original, 1 if "rmw" in name else 0, mask_at))

    def begin(self, arguments: Mapping[str, Any]) -> None:
        """A launch begins.

        Args:
            arguments: of the kernel, by parameter.
        """
        named = [(name, tensor) for name, value in arguments.items() for tensor in _tensors_in(value)]
        self._tensors = [(*_storage(tensor), name) for name, tensor in named]
        self._extents = {name: tensor.numel() * tensor.element_size() for name, tensor in named}

    @property
    def largest(self) -> int:
        """Bytes of the largest tensor of the launch."""
        return max(self._extents.values(), default=0)

    def coverage(self) -> dict[str, float]:
        """Which share of each parameter's tensor the launch has loaded or stored, at most 1.

        Repetitions count; accesses whose places come from data do not.
        """
        meter = self._loops.meter
        counts = {
            f"{what} {name}": count
            for what, found in (("load", meter.loaded), ("store", meter.stored))
            for name, count in found.items()
        }
        return {
            key: round(min(1.0, count / max(1, self._extents.get(key.split()[-1], 0))), 4)
            for key, count in counts.items()
        }

    def load(self, pointers: Array, mask: Array, other: Array, dtype: Any, really: Callable[..., Any]) -> Array:
        """The interpreter's load."""
        active = pointers[np.broadcast_to(mask, pointers.shape)]
        self._is_unknown = False
        if active.size:
            start, _, name = self._place(active)
            self._is_unknown = self._space.is_unknown_at(start)
            self._note(self._loops.meter.loaded, name, active, np.dtype(dtype).itemsize)
        if self._is_unknown:
            return np.zeros(pointers.shape, dtype)
        result: Array = really(pointers, mask, other, dtype)
        return result

    def store(self, pointers: Array, value: Array, mask: Array) -> None:
        """The interpreter's store, and what an atomic writes."""
        active = pointers[np.broadcast_to(mask, pointers.shape)]
        if active.size:
            start, _, name = self._place(active)
            self._space.taint_at(start)
            self._note(self._loops.meter.stored, name, active, value.dtype.itemsize)

    def _note(self, counts: dict[str, float], name: str, active: Array, itemsize: int) -> None:
        if self._is_placed:
            counts[name] += self._loops.meter.weight * itemsize * distinct(active)

    def _place(self, active: Array) -> tuple[int, int, str]:
        """Storage and parameter that addresses lie in; those of several tensors count for the first one's."""
        address = int(active.flat[0])
        return next((item for item in self._tensors if item[0] <= address < item[1]), (0, 0, ""))

    def _loading(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def load(builder: Any, pointers: Any, mask: Any, *rest: Any, **options: Any) -> Any:
            itemsize = _get_np_dtype(pointers.get_element_ty()).itemsize
            self._is_placed = not (is_unknown(pointers) or is_unknown(mask))
            pointers, mask = self._followed(pointers, mask, itemsize)
            result = original(builder, pointers, mask, *rest, **options)
            return result if self._is_placed and not self._is_unknown else mark(result)

        return load

    def _writing(self, original: Callable[..., Any], at: int, mask_at: int | None) -> Callable[..., Any]:
        @wraps(original)
        def write(builder: Any, *args: Any, **options: Any) -> Any:
            given = list(args)
            mask = given[mask_at] if mask_at is not None else TensorHandle(np.ones(1, dtype=bool), tl.int1)
            self._is_placed = not (is_unknown(given[at]) or is_unknown(mask))
            given[at], mask = self._followed(given[at], mask, given[at + 1].data.itemsize)
            if mask_at is not None:
                given[mask_at] = mask
            result = original(builder, *given, **options)
            return mark(result)  # what an atomic returns was in memory

        return write

    def _followed(self, pointers: Any, mask: Any, itemsize: int) -> tuple[Any, Any]:
        """Addresses and mask that can be counted."""
        if is_unknown(pointers):
            pointers = TensorHandle(self._neighbours(pointers.data, itemsize), pointers.dtype)
        if is_unknown(mask):
            mask = TensorHandle(self._inside(pointers.data, itemsize), tl.int1)
        return pointers, mask

    def _neighbours(self, data: Array, itemsize: int) -> Array:
        start, end, _ = self._place(data)
        lanes = max(1, (end - start) // itemsize)
        offsets: Array = (np.arange(data.size, dtype=np.uint64) % np.uint64(lanes)) * np.uint64(itemsize)
        addresses: Array = (offsets + np.uint64(start)).reshape(data.shape)
        return addresses

    def _inside(self, data: Array, itemsize: int) -> Array:
        lanes = [(start <= data) & (data + np.uint64(itemsize) <= end) for start, end in STATE.ranges]
        found: Array = np.logical_or.reduce(lanes) if lanes else np.zeros(data.shape, dtype=bool)
        return found


class _Access:
    """The interpreter's access to memory, `triton._C.libtriton.interpreter`, with tensors that have no memory."""

    def __init__(self, original: Any, memory: DryMemory) -> None:
        self._original, self._memory = original, memory

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    def load(self, pointers: Array, mask: Array, other: Array, dtype: Any) -> Array:
        """Load lanes."""
        return self._memory.load(pointers, mask, other, dtype, self._original.load)

    def store(self, pointers: Array, value: Array, mask: Array) -> None:
        """Store lanes."""
        self._memory.store(pointers, value, mask)

    def atomic_rmw(self, op: Any, pointers: Array, value: Array, mask: Array, order: Any) -> Array:
        """Read, change and write lanes; what was there is not known."""
        self._memory.store(pointers, value, mask)
        return np.zeros(np.broadcast_shapes(pointers.shape, value.shape), value.dtype)

    def atomic_cas(self, pointers: Array, compared: Array, value: Array, order: Any) -> Array:
        """Compare and write lanes; what was there is not known."""
        self._memory.store(pointers, value, np.ones(pointers.shape, dtype=bool))
        return np.zeros(pointers.shape, compared.dtype)


def distinct(active: Array) -> int:
    """How many different addresses these are."""
    flat = active.reshape(-1)
    return flat.size if bool(np.all(flat[1:] > flat[:-1])) else np.unique(flat).size


def _tensors_in(value: Any) -> Iterable[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, tuple | list):
        return [tensor for item in value for tensor in _tensors_in(item)]
    base = getattr(value, "base", None)
    return [base] if isinstance(base, torch.Tensor) else []


def _storage(tensor: torch.Tensor) -> tuple[int, int]:
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.data_ptr() + storage.nbytes()
