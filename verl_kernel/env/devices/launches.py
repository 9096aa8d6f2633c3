# SPDX-License-Identifier: Apache-2.0
"""Counts what Triton's interpreter does: launches, device-memory traffic and floating-point operations.

A load or store moves each distinct address of its unmasked lanes once; an atomic reads and writes. A dot of
(M, K) by (K, N) is 2MNK operations; elementwise arithmetic and reductions are one per element. Import this
module only in a process that imported triton with TRITON_INTERPRET=1.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable
from functools import wraps
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import FunctionRewriter, GridExecutor, InterpretedFunction, InterpreterBuilder

from verl_kernel.env.trace import TraceEvent

REFUSED = "_triton_refused"
"""Attribute set on an exception that a kernel's own code raised."""


class Launches:
    """State of this process's launches (the interpreter runs one kernel at a time)."""

    def __init__(self) -> None:
        self.events: list[TraceEvent] | None = None
        self.suppressed = False
        self.marshalling = False
        self.running = False
        self.reset()

    def reset(self) -> None:
        """Zero the counters of the current launch."""
        self.bytes = self.flops = self.half_flops = 0


STATE = Launches()


def install() -> None:
    """Wrap the interpreter (once per process)."""
    if getattr(GridExecutor.__call__, "counted", False):
        return
    _count_memory()
    _count_arithmetic()
    GridExecutor.__call__ = _recorded(GridExecutor.__call__)
    for name in ("_init_args_hst", "_restore_args_dev"):
        setattr(GridExecutor, name, _marshalling(getattr(GridExecutor, name)))
    InterpretedFunction.__call__ = _call_device_function
    InterpretedFunction.rewrite = _refusing(InterpretedFunction.rewrite)
    FunctionRewriter._compile_and_exec = _compile_kernel
    interpreter._patch_lang = _patched_whole(interpreter._patch_lang)


def count_flops(number: int) -> None:
    """Charge operations to the current launch."""
    STATE.flops += number


def _recorded(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def launch(self: Any, *args: Any, **kwargs: Any) -> Any:
        if STATE.suppressed:
            return None
        STATE.reset()
        interpreter.interpreter_builder.grid_dim = ()
        STATE.running, failed = True, True
        try:
            result = original(self, *args, **kwargs)
            failed = False
            return result
        except Exception as exc:
            _mark_refusal(exc, self.fn)
            raise
        finally:
            STATE.running = False
            _record(self.fn, failed)

    launch.counted = True  # type: ignore[attr-defined]
    return launch


def _record(fn: FunctionType, failed: bool) -> None:
    grid = _grid()
    if STATE.events is None or (0 in grid and not failed):  # a GPU starts nothing for an empty grid
        return
    source = fn.__code__.co_filename
    counts = (STATE.bytes, STATE.flops, STATE.half_flops)
    STATE.events.append(TraceEvent("launch", fn.__name__, grid, *counts, source=source, failed=failed))


def _grid() -> tuple[int, ...]:
    try:
        return tuple(max(int(size), 0) for size in interpreter.interpreter_builder.grid_dim)
    except (TypeError, ValueError):  # the launch failed because its grid holds something else
        return ()


def _mark_refusal(exc: Exception, fn: FunctionType) -> None:
    in_kernel = any(frame.f_code is fn.__code__ for frame, _ in traceback.walk_tb(exc.__traceback__))
    if in_kernel and not isinstance(exc, MemoryError):
        setattr(exc, REFUSED, True)


def _refusing(original: Callable[..., Any]) -> Callable[..., Any]:
    """Whatever goes wrong while Triton parses a kernel is a refusal."""

    @wraps(original)
    def rewrite(self: Any) -> Any:
        try:
            return original(self)
        except Exception as exc:
            setattr(exc, REFUSED, True)
            raise

    return rewrite


def _marshalling(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def method(*args: Any, **kwargs: Any) -> Any:
        STATE.marshalling = True
        try:
            return original(*args, **kwargs)
        finally:
            STATE.marshalling = False

    return method


def _call_device_function(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a jit function from a kernel; as on a GPU, the host cannot, or it would compute unseen."""
    if not STATE.running:
        raise RuntimeError("Cannot call @triton.jit'd outside of the scope of a kernel")
    return self.rewrite()(*args, **kwargs)


def _compile_kernel(self: Any, tree: Any) -> Any:
    """Compile a rewritten kernel without leaking the interpreter's imports (`np`, `math`) into its globals."""
    for name in ("interpreter_semantic", "_InterpreterComparison"):
        if hasattr(interpreter, name):
            self.fn.__globals__.setdefault(name, getattr(interpreter, name))
    namespace = {**self.kwargs}
    exec(compile(tree, filename=self.filename, mode="exec"), self.fn.__globals__, namespace)
    kernel = namespace[self.fn.__name__]
    marks = {name: "constexpr" if "constexpr" in str(mark) else mark for name, mark in kernel.__annotations__.items()}
    kernel.__annotations__ = marks  # by any name of triton.language, not `tl` alone
    return kernel


def _patched_whole(original: Callable[..., Any]) -> Callable[..., Any]:
    """Patch all of triton.language for a launch, whatever names the kernel's file uses for it."""
    everything = SimpleNamespace(__globals__={"tl": tl, "core": tl.core})

    def patch(fn: Any) -> Any:
        return original(everything)

    return patch


def _count_memory() -> None:
    _after(InterpreterBuilder, "create_masked_load", _count_load)
    _after(InterpreterBuilder, "create_masked_store", _count_store)
    _after(InterpreterBuilder, "create_atomic_rmw", _count_atomic)
    _after(InterpreterBuilder, "create_atomic_cas", _count_swap)


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


def _touched(pointers: Any, mask: Any) -> int:
    """Number of distinct addresses of the unmasked lanes."""
    active = pointers.data[np.broadcast_to(mask, pointers.data.shape)]
    return active.size if np.all(active[1:] > active[:-1]) else np.unique(active).size


def _count_load(result: Any, pointers: Any, mask: Any, *rest: Any, **options: Any) -> None:
    STATE.bytes += _touched(pointers, mask.data) * result.data.itemsize


def _count_store(result: Any, pointers: Any, value: Any, mask: Any, *rest: Any, **options: Any) -> None:
    STATE.bytes += _touched(pointers, mask.data) * value.data.itemsize


def _count_atomic(result: Any, op: Any, pointers: Any, value: Any, mask: Any, *rest: Any, **options: Any) -> None:
    STATE.bytes += 2 * _touched(pointers, mask.data) * value.data.itemsize


def _count_swap(result: Any, pointers: Any, compared: Any, value: Any, *rest: Any, **options: Any) -> None:
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
