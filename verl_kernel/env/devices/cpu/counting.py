# SPDX-License-Identifier: Apache-2.0
"""Counts what a launch does under Triton's interpreter: device-memory traffic and floating-point operations.

A load or store moves each distinct address of its unmasked lanes once; an atomic reads and writes. A dot of
(M, K) by (K, N) is 2MNK operations; elementwise arithmetic and reductions are one per element. Loads and stores must
stay inside the tensors of the launch, whatever integers it was given. What the machine model needs beyond these sums,
`traffic` and `launch_steps` hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import numpy as np
import torch
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpreterBuilder, _get_np_dtype

from verl_kernel.env.devices.base import ProgramWatch
from verl_kernel.env.devices.cpu.native_work import NativeWork, Uses
from verl_kernel.env.devices.cpu.work.launch_steps import Products
from verl_kernel.env.devices.cpu.work.traffic import Traffic, sector_bytes
from verl_kernel.env.devices.launch_requests import Granted, Range, tensors_among
from verl_kernel.env.trace import TraceEvent


class OutOfBounds(Exception):
    """A kernel leaves the tensors it was given: on a GPU an illegal access, or somebody else's data."""

    address = 0
    """Where the first lane that does begins."""
    inside: int | None = None
    """Where another lane of the access begins, one that stays inside."""


class Launches:
    """State of this process's launches (the interpreter runs one kernel at a time)."""

    def __init__(self) -> None:
        self.events: list[TraceEvent] | None = None
        self.suppressed = False
        self.marshalling = False
        self.running = False
        self.watch: ProgramWatch | None = None
        self.native: Callable[..., Any] | None = None
        """What runs a launch in the interpreter's place."""
        self.native_tunes = False
        """Whether it also runs the launches that an autotuner tries."""
        self.native_work: NativeWork | None = None
        """What the launch did, if it ran natively."""
        self.variant = ""
        """Which compiled kernel the launch needs (`launch_variants`); "" where nobody compiles."""
        self.spent_ns = 0
        """Processor time of all launches and recorded ops so far."""
        self.tensors: list[torch.Tensor] = []
        """Those among the launch's arguments."""
        self.ranges: list[Range] = []
        """The memory of each that the launch may touch."""
        self.granted = Granted()
        """Memory that launches may touch."""
        self.reset()

    def native_for(self, is_tried: bool) -> Callable[..., Any] | None:
        """What runs a launch natively; None where the interpreter does, as for those tried after it has chosen."""
        return self.native if self.native_tunes or not is_tried else None

    def reset(self) -> None:
        """Zero the counters of the current launch."""
        self.bytes = self.flops = self.half_flops = 0
        self.native_work = None
        self.traffic = Traffic()
        self.products: dict[str, Products] = {}
        self.warps = 0
        self.weight = 1.0
        """How many programs and turns of loops what runs now stands for; 1 where every program runs."""
        self._programs = 0.0
        """How many programs the one that runs stands for; 0 between programs."""
        self._marked, self._program_flops = 0, 0.0

    def weigh(self, weight: float) -> None:
        """What follows counts `weight` times; before a program begins, that is how many it stands for."""
        self._settle()
        self.weight = weight
        self.traffic.turns = weight / self._programs if self._programs else 1.0

    def begin_program(self) -> None:
        """The next program of the launch begins."""
        self.end_program()
        self._programs, self.traffic.turns = self.weight, 1.0
        self._marked, self._program_flops = self.flops, 0.0

    def end_program(self) -> None:
        """The program of the launch that runs, if any, has ended."""
        if self._programs:
            self._settle()
            self.traffic.end_program(self._program_flops, self._programs)
            self._programs = 0.0

    def _settle(self) -> None:
        if self._programs:
            self._program_flops += (self.flops - self._marked) * self.traffic.turns
            self._marked = self.flops

    def uses(self) -> Uses:
        """Tensors that the launch has read and those it has written, each with its bytes."""
        reads, writes = (
            [(self.tensors[place], use.once) for place, use in some.items() if place >= 0]
            for some in (self.traffic.reads, self.traffic.writes)
        )
        return reads, writes

    def multiply(self, unit: str, times: int, flops: float, rows: int, columns: int) -> None:
        """Charge products of a tile to the current launch."""
        kind, flops = self.products.setdefault(unit, Products()), self.weight * flops
        kind.counted += flops
        kind.flops += times * flops
        kind.operands += times * flops * (rows + columns) / (rows * columns)


STATE = Launches()


def count_flops(number: int) -> None:
    """Charge operations to the current launch."""
    STATE.flops += number


def allow(arguments: Iterable[Any]) -> None:
    """The launch that follows may touch the memory of the tensors among its arguments."""
    STATE.tensors = tensors_among(arguments)
    STATE.ranges = [STATE.granted.memory(tensor) for tensor in STATE.tensors]


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
    place = next((at for at, (start, end) in enumerate(STATE.ranges) if start <= low and high <= end), -1)
    if place < 0:
        _visit_each(active, itemsize, access)
    moved = sector_bytes(active, is_sorted, itemsize)
    if access == "store":
        STATE.traffic.write(place, low, high, moved)
    else:
        STATE.traffic.read(place, low, high, moved, pointers.data.size * itemsize)
    return active.size if is_sorted else np.unique(active).size


def _visit_each(active: Any, itemsize: int, access: str) -> None:
    """Lanes may lie in several tensors."""
    ranges = np.array(STATE.ranges, dtype=np.uint64).reshape(-1, 2)
    flat = active.reshape(-1, 1)
    inside = (ranges[:, 0] <= flat) & (flat + np.uint64(itemsize) <= ranges[:, 1])
    outside = ~inside.any(axis=1)
    if bool(outside.any()):
        exc = OutOfBounds(f"a {access} lies outside the tensors of the launch: check the mask and the grid")
        exc.address, exc.inside = int(active[outside][0]), next(map(int, active[~outside]), None)
        raise exc


def _count_memory() -> None:
    _before(InterpreterBuilder, "create_masked_load", _count_load)
    _before(InterpreterBuilder, "create_masked_store", _count_store)
    _before(InterpreterBuilder, "create_atomic_rmw", _count_atomic)
    _before(InterpreterBuilder, "create_atomic_cas", _count_swap)
    _before(InterpreterBuilder, "set_grid_idx", lambda *index: STATE.begin_program())


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
    for access in ("load", "store"):
        STATE.bytes += _visit(pointers, mask.data, value.data.itemsize, access) * value.data.itemsize


def _count_swap(pointers: Any, compared: Any, value: Any, *rest: Any, **options: Any) -> None:
    for access in ("load", "store"):
        STATE.bytes += _visit(pointers, True, value.data.itemsize, access) * value.data.itemsize


def _count_elements(result: Any, *operands: Any, **options: Any) -> None:
    if result.dtype.scalar.is_floating():
        STATE.flops += result.data.size


def _count_fma(result: Any, *operands: Any, **options: Any) -> None:
    STATE.flops += 2 * result.data.size


def _count_reduction(result: Any, tensors: Any, *rest: Any, **options: Any) -> None:
    tensor = tensors[0] if isinstance(tensors, tuple) else tensors
    STATE.flops += tensor.handle.data.size


def _count_dot(result: Any, a: Any, b: Any, d: Any = None, precision: Any = "", *rest: Any, **options: Any) -> None:
    flops = 2 * math.prod(result.data.shape) * a.data.shape[-1]
    STATE.flops += flops
    is_half = a.dtype.scalar.primitive_bitwidth <= 16
    if is_half:
        STATE.half_flops += flops
    unit, times = ("half", 1) if is_half else _precision(str(precision).lower())
    STATE.multiply(unit, times, flops, *result.data.shape[-2:])


def _precision(name: str) -> tuple[str, int]:
    """The unit of a product of float32 tiles, and how many products of rounded operands it takes there."""
    if "x" in name:  # tf32x3, bf16x3, bf16x6: on tensor cores, exact to float32 or nearly so
        return "half" if "bf16" in name else "tf32", int(name[-1])
    return ("fma" if "ieee" in name else "matmul"), 1


def _count_scaled_dot(result: Any, a: Any, *rest: Any, **options: Any) -> None:
    flops = 2 * math.prod(result.data.shape) * a.data.shape[-1]
    STATE.flops += flops
    STATE.half_flops += flops
    STATE.multiply("half", 1, flops, *result.data.shape[-2:])
