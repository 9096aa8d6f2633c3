# SPDX-License-Identifier: Apache-2.0
"""Counts what a launch does under Triton's interpreter: device-memory traffic and floating-point operations.

A load or store moves each distinct address of its unmasked lanes once; an atomic reads and writes. A dot of
(M, K) by (K, N) is 2MNK operations; elementwise arithmetic and reductions are one per element. Stores must stay
inside the tensors of the launch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Any

import numpy as np
import torch
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpreterBuilder

from verl_kernel.env.trace import TraceEvent

_POINTER = 1 << 32
"""Integers from here on may be addresses."""


class OutOfBounds(Exception):
    """A kernel stores outside the tensors it was given: on a GPU an illegal access, or somebody else's data."""


class Launches:
    """State of this process's launches (the interpreter runs one kernel at a time)."""

    def __init__(self) -> None:
        self.events: list[TraceEvent] | None = None
        self.suppressed = False
        self.marshalling = False
        self.running = False
        self.spent_ns = 0
        """Processor time of all launches and recorded ops so far."""
        self.ranges: np.ndarray[Any, Any] | None = None
        """First and last byte (exclusive) of the launch's tensors; None where addresses may come from elsewhere."""
        self.reset()

    def reset(self) -> None:
        """Zero the counters of the current launch."""
        self.bytes = self.flops = self.half_flops = 0


STATE = Launches()


def count_flops(number: int) -> None:
    """Charge operations to the current launch."""
    STATE.flops += number


def allow_stores(arguments: Iterable[Any]) -> None:
    """Stores of the launch that follows must hit the storage of one of these arguments."""
    tensors, closed = [], True
    for value in _leaves(arguments):
        if isinstance(value, torch.Tensor):
            tensors.append(value)
            closed = closed and value.dtype not in (torch.int64, torch.uint64)
        elif isinstance(value, int) and value >= _POINTER:
            closed = False
    storages = [tensor.untyped_storage() for tensor in tensors]
    limits = [(storage.data_ptr(), storage.data_ptr() + storage.nbytes()) for storage in storages]
    STATE.ranges = np.array(limits, dtype=np.uint64).reshape(-1, 2) if closed else None


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


def _stay_inside(pointers: Any, mask: Any, itemsize: int) -> None:
    ranges = STATE.ranges
    if ranges is None:
        return
    active = pointers.data[np.broadcast_to(mask, pointers.data.shape)]
    if active.size == 0:
        return
    low, high = active.min(), active.max() + np.uint64(itemsize)
    if bool(np.any((ranges[:, 0] <= low) & (high <= ranges[:, 1]))):
        return
    flat = active.reshape(-1, 1)
    inside = (ranges[:, 0] <= flat) & (flat + np.uint64(itemsize) <= ranges[:, 1])
    if not bool(inside.any(axis=1).all()):
        raise OutOfBounds("a store lies outside the tensors of the launch: check the mask and the grid")


def _count_memory() -> None:
    _after(InterpreterBuilder, "create_masked_load", _count_load)
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


def _touched(pointers: Any, mask: Any) -> int:
    """Number of distinct addresses of the unmasked lanes."""
    active = pointers.data[np.broadcast_to(mask, pointers.data.shape)]
    return active.size if np.all(active[1:] > active[:-1]) else np.unique(active).size


def _count_load(result: Any, pointers: Any, mask: Any, *rest: Any, **options: Any) -> None:
    STATE.bytes += _touched(pointers, mask.data) * result.data.itemsize


def _count_store(pointers: Any, value: Any, mask: Any, *rest: Any, **options: Any) -> None:
    _stay_inside(pointers, mask.data, value.data.itemsize)
    STATE.bytes += _touched(pointers, mask.data) * value.data.itemsize


def _count_atomic(op: Any, pointers: Any, value: Any, mask: Any, *rest: Any, **options: Any) -> None:
    _stay_inside(pointers, mask.data, value.data.itemsize)
    STATE.bytes += 2 * _touched(pointers, mask.data) * value.data.itemsize


def _count_swap(pointers: Any, compared: Any, value: Any, *rest: Any, **options: Any) -> None:
    _stay_inside(pointers, True, value.data.itemsize)
    STATE.bytes += 2 * _touched(pointers, True) * value.data.itemsize


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
