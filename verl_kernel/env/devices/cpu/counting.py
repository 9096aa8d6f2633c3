# SPDX-License-Identifier: Apache-2.0
"""Counts what a launch does under Triton's interpreter: device-memory traffic and floating-point operations.

A load or store moves each distinct address of its unmasked lanes once; an atomic reads and writes. A dot of
(M, K) by (K, N) is 2MNK operations; elementwise arithmetic and reductions are one per element. Loads and stores must
stay inside the tensors of the launch, whatever integers it was given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Any

import numpy as np
import torch
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpreterBuilder, _get_np_dtype

from verl_kernel.env.trace import TraceEvent

Range = tuple[int, int]
"""First byte and the byte behind the last."""


class OutOfBounds(Exception):
    """A kernel leaves the tensors it was given: on a GPU an illegal access, or somebody else's data."""


class Launches:
    """State of this process's launches (the interpreter runs one kernel at a time)."""

    def __init__(self) -> None:
        self.events: list[TraceEvent] | None = None
        self.suppressed = False
        self.marshalling = False
        self.running = False
        self.spent_ns = 0
        """Processor time of all launches and recorded ops so far."""
        self.ranges: list[Range] = []
        """Memory that the launch may touch."""
        self.shared: Range = (0, 0)
        """The judge's memory, where tensors of others lie beside the launch's."""
        self.places: list[Range] = []
        """The tensors in the judge's memory that the program was given."""
        self.reset()

    def reset(self) -> None:
        """Zero the counters of the current launch."""
        self.bytes = self.flops = self.half_flops = 0


STATE = Launches()


def count_flops(number: int) -> None:
    """Charge operations to the current launch."""
    STATE.flops += number


def confine(shared: Range, places: Iterable[Range]) -> None:
    """Of the judge's memory, launches may touch these tensors, each where it was handed over."""
    STATE.shared, STATE.places = shared, sorted(places)


def allow(arguments: Iterable[Any]) -> None:
    """The launch that follows may touch the memory of the tensors among its arguments."""
    STATE.ranges = [_memory(value) for value in _leaves(arguments) if isinstance(value, torch.Tensor)]


def _memory(tensor: torch.Tensor) -> Range:
    storage = tensor.untyped_storage()
    start = storage.data_ptr()
    if start != STATE.shared[0]:
        return start, start + storage.nbytes()
    address = tensor.data_ptr()
    return next((place for place in STATE.places if place[0] <= address < place[1]), (0, 0))


def _leaves(arguments: Iterable[Any]) -> Iterator[Any]:
    for value in arguments:
        if isinstance(value, tuple | list):
            yield from _leaves(value)
        else:
            yield getattr(value, "base", value) if not isinstance(value, torch.Tensor) else value


def install() -> None:
    """Wrap the interpreter's builder (once per process)."""
    _count_memory()
    _count_arithmetic()


def _visit(pointers: Any, mask: Any, itemsize: int, access: str) -> int:
    """How many distinct addresses the unmasked lanes name, none of which may lie outside the launch's tensors."""
    active = pointers.data[np.broadcast_to(mask, pointers.data.shape)]
    if active.size == 0:
        return 0
    is_sorted = bool(np.all(active[1:] > active[:-1]))
    first, last = (active[0], active[-1]) if is_sorted else (active.min(), active.max())
    low, high = int(first), int(last) + itemsize
    if not any(start <= low and high <= end for start, end in STATE.ranges):
        _visit_each(active, itemsize, access)
    return active.size if is_sorted else np.unique(active).size


def _visit_each(active: Any, itemsize: int, access: str) -> None:
    """Lanes may lie in several tensors."""
    ranges = np.array(STATE.ranges, dtype=np.uint64).reshape(-1, 2)
    flat = active.reshape(-1, 1)
    inside = (ranges[:, 0] <= flat) & (flat + np.uint64(itemsize) <= ranges[:, 1])
    if not bool(inside.any(axis=1).all()):
        raise OutOfBounds(f"a {access} lies outside the tensors of the launch: check the mask and the grid")


def _count_memory() -> None:
    _before(InterpreterBuilder, "create_masked_load", _count_load)
    _before(InterpreterBuilder, "create_masked_store", _count_store)
    _before(InterpreterBuilder, "create_atomic_rmw", _count_atomic)
    _before(InterpreterBuilder, "create_atomic_cas", _count_swap)


def _count_arithmetic() -> None:
    for name in ("unary_op", "binary_op", "ternary_op", "create_erf", "create_rsqrt", "create_fabs"):
        _after(InterpreterBuilder, name, _count_elements)
    _after(InterpreterBuilder, "create_fma", _count_fma)
    _after(InterpreterBuilder, "create_dot", _count_dot)
    _after(InterpreterBuilder, "create_dot_scaled", _count_scaled_dot)
    for name in ("sum", "min_max"):
        _after(interpreter.ReduceOps, name, _count_reduction)
    for name in ("cumsum", "cumprod"):
        _after(interpreter.ScanOps, name, _count_reduction)


def _after(owner: type, name: str, count: Callable[..., None]) -> None:
    """Call `count(result, *arguments)` after each call of a method that this Triton has."""
    original = getattr(owner, name, None)
    if original is None:
        return

    @wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        count(result, *args, **kwargs)
        return result

    setattr(owner, name, method)


def _before(owner: type, name: str, count: Callable[..., None]) -> None:
    """Call `count(*arguments)` before each call of a method that this Triton has."""
    original = getattr(owner, name, None)
    if original is None:
        return

    @wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        count(*args, **kwargs)
        return original(self, *args, **kwargs)

    setattr(owner, name, method)


def _count_load(pointers: Any, mask: Any, *rest: Any, **options: Any) -> None:
    itemsize = _get_np_dtype(pointers.get_element_ty()).itemsize
    STATE.bytes += _visit(pointers, mask.data, itemsize, "load") * itemsize


def _count_store(pointers: Any, value: Any, mask: Any, *rest: Any, **options: Any) -> None:
    STATE.bytes += _visit(pointers, mask.data, value.data.itemsize, "store") * value.data.itemsize


def _count_atomic(op: Any, pointers: Any, value: Any, mask: Any, *rest: Any, **options: Any) -> None:
    STATE.bytes += 2 * _visit(pointers, mask.data, value.data.itemsize, "store") * value.data.itemsize


def _count_swap(pointers: Any, compared: Any, value: Any, *rest: Any, **options: Any) -> None:
    STATE.bytes += 2 * _visit(pointers, True, value.data.itemsize, "store") * value.data.itemsize


def _count_elements(result: Any, *operands: Any, **options: Any) -> None:
    if result.dtype.scalar.is_floating():
        STATE.flops += result.data.size


def _count_fma(result: Any, *operands: Any, **options: Any) -> None:
    STATE.flops += 2 * result.data.size


def _count_reduction(result: Any, tensors: Any, *rest: Any, **options: Any) -> None:
    tensor = tensors[0] if isinstance(tensors, tuple) else tensors
    STATE.flops += tensor.handle.data.size


def _count_dot(result: Any, a: Any, b: Any, *rest: Any, **options: Any) -> None:
    flops = 2 * math.prod(result.data.shape) * a.data.shape[-1]
    STATE.flops += flops
    if a.dtype.scalar.primitive_bitwidth <= 16:
        STATE.half_flops += flops


def _count_scaled_dot(result: Any, a: Any, *rest: Any, **options: Any) -> None:
    flops = 2 * math.prod(result.data.shape) * a.data.shape[-1]
    STATE.flops += flops
    STATE.half_flops += flops
