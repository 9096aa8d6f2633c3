# SPDX-License-Identifier: Apache-2.0
"""Launches under Triton's interpreter: checked, counted, timed, recorded.

Import this module only in a process that imported triton with TRITON_INTERPRET=1.
"""

from __future__ import annotations

import inspect
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from types import FunctionType, SimpleNamespace
from typing import Any

import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import FunctionRewriter, GridExecutor, InterpretedFunction, InterpreterBuilder

from verl_kernel.env.devices.cpu import counting, store_hooks
from verl_kernel.env.devices.cpu.counting import STATE
from verl_kernel.env.devices.cpu.language import conditions, scalars, triton_objects
from verl_kernel.env.devices.cpu.language.kernel_language import CONSTANT_TEXTS, KernelText
from verl_kernel.env.devices.cpu.language.triton_objects import NotTriton
from verl_kernel.env.devices.cpu.launch_variants import VARIANTS
from verl_kernel.env.devices.cpu.memory import hooks
from verl_kernel.env.devices.cpu.native_work import Uses
from verl_kernel.env.devices.cpu.stores import STORES
from verl_kernel.env.devices.cpu.work.launch_steps import launch_steps, warps_of
from verl_kernel.env.devices.launch_requests import grid_sizes
from verl_kernel.env.devices.op_recorder import OpRecorder
from verl_kernel.env.machine.constants import constant
from verl_kernel.env.tamper.hack_flags import HackFlag
from verl_kernel.env.tamper.tripwire import WIRE
from verl_kernel.env.trace import Step, TraceEvent

REFUSED = "_triton_refused"
"""Attribute set on an exception that a kernel's own code raised."""
_BY_VALUES = (AssertionError, ArithmeticError)
"""Errors that depend on values: a kernel that raises one is none that a compiler would refuse."""
_APPROVED: dict[Any, KernelText | None] = {}
"""Kernels as the interpreter runs them, and what was checked of them; None for Triton's own."""


def install() -> None:
    """Wrap the interpreter (once per process)."""
    if getattr(GridExecutor.__call__, "counted", False):
        return
    triton_objects.freeze()
    store_hooks.install()
    hooks.install()
    counting.install()
    hooks.install_guard()
    conditions.install()
    scalars.install()
    GridExecutor.__call__ = launching(GridExecutor.__call__)
    InterpreterBuilder.set_grid_idx = _beginning(InterpreterBuilder.set_grid_idx)
    for name in ("_init_args_hst", "_restore_args_dev"):
        setattr(GridExecutor, name, _marshalling(getattr(GridExecutor, name)))
    InterpretedFunction.__call__ = _call_device_function
    InterpretedFunction.rewrite = _checked(InterpretedFunction.rewrite)
    FunctionRewriter.rewrite_ast = _rewritten(FunctionRewriter.rewrite_ast)
    FunctionRewriter._compile_and_exec = _compile_own
    for kind in (interpreter.ReduceOps, interpreter.ScanOps):
        kind.__init__ = _combining(kind.__init__)
    interpreter._patch_lang = _patched_whole(interpreter._patch_lang)


def launching(original: Callable[..., Any]) -> Callable[..., Any]:
    """A launch that is checked, timed and recorded; `original` runs its programs."""

    @wraps(original)
    def launch(self: Any, *args: Any, **kwargs: Any) -> Any:
        if STATE.running:
            raise _refused(RuntimeError("a kernel cannot launch a kernel"))
        if STATE.suppressed:
            return None
        if self.fn not in _APPROVED:
            raise _unapproved(self.fn)
        _prepare(self, args, kwargs)
        return _run(STATE.native_for(STORES.is_paused) or original, self, args, kwargs)

    launch.counted = True  # type: ignore[attr-defined]
    return launch


def _unapproved(fn: Any) -> RuntimeError:
    WIRE.note(HackFlag.UNAPPROVED_LAUNCH, f"{getattr(fn, '__name__', 'a function')} is no kernel of triton.jit")
    return RuntimeError("only functions under @triton.jit can be launched")


def _prepare(executor: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """What the host does before a launch, on the host's account: hooks, the grid, checks of the arguments."""
    for hook in executor.pre_run_hooks:
        hook(*args, **kwargs)
    executor.pre_run_hooks = []
    known = inspect.signature(executor.fn).parameters
    given = {name: value for name, value in kwargs.items() if name in known}
    bound = inspect.getcallargs(executor.fn, *args, **given)
    try:
        triton_objects.check_arguments(executor.fn.__name__, bound.values())
        triton_objects.check_constants(executor.fn.__name__, {name: bound[name] for name in executor.constexprs})
    except NotTriton as exc:
        raise _refused(exc) from None
    if callable(executor.grid):
        executor.grid = executor.grid(bound)
    executor.grid = grid_sizes(executor.grid)
    counting.allow(bound.values())
    STATE.variant = _variant(executor.fn, args, kwargs)


def _variant(fn: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Which launches need the same compiled kernel; "" where nobody compiles."""
    text = _APPROVED[fn]
    if text is None or not VARIANTS.is_on:
        return ""
    note = VARIANTS.attempt if STORES.is_paused else VARIANTS.note
    return note(text, args, kwargs, _text_of)


def _text_of(function: Any) -> KernelText | None:
    if isinstance(function, InterpretedFunction):
        return _APPROVED[function.rewrite()]
    return CONSTANT_TEXTS.get(function.fn)


def _run(original: Callable[..., Any], executor: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    STATE.reset()
    STATE.warps = warps_of(kwargs.get("num_warps"))
    STATE.running, failed, start = True, True, time.thread_time_ns()
    try:
        result = original(executor, *args, **kwargs)
        failed = False
        return result
    except Exception as exc:  # a kernel may raise anything; it goes on to whoever launched it
        _mark_refusal(exc, executor.fn)
        raise
    finally:
        if STATE.watch is not None:
            STATE.watch.end_launch()
        STATE.running = False
        STATE.spent_ns += time.thread_time_ns() - start
        _record(executor.fn, executor.grid, failed)
        STATE.tensors = []  # the program's memory is freed when the program drops it


def _beginning(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def set_grid_idx(self: Any, *index: int) -> None:
        original(self, *index)
        if STATE.watch is not None:
            STATE.watch.begin_program(index, self.grid_dim)

    return set_grid_idx


def _record(fn: FunctionType, grid: tuple[int, ...], failed: bool) -> None:
    if STATE.events is None or (0 in grid and not failed):  # a GPU starts nothing for an empty grid
        return
    source = fn.__code__.co_filename
    counts, steps, uses = _did(grid)
    host = int(constant("triton_host_us"))
    event = TraceEvent("launch", fn.__name__, grid, *counts, source=source, failed=failed, steps=steps, host_us=host)
    recent = () if STORES.is_paused or OpRecorder.current is None else OpRecorder.current.l2.add(*uses)
    STATE.events.append(
        replace(event, stored=STORES.stored, computed=STORES.computed, recent=recent, variant=STATE.variant)
    )


def _did(grid: tuple[int, ...]) -> tuple[tuple[int, int, int], tuple[Step, ...], Uses]:
    """Counts, steps and uses of the launch that has ended."""
    if (native := STATE.native_work) is not None:
        return native.counts, native.steps, native.uses
    STATE.end_program()
    steps = launch_steps(STATE.traffic, grid, STATE.flops, STATE.products, STATE.warps)
    return (STATE.bytes, STATE.flops, STATE.half_flops), steps, STATE.uses()


def _mark_refusal(exc: Exception, fn: FunctionType) -> None:
    codes = [frame.f_code for frame, _ in traceback.walk_tb(exc.__traceback__)]
    by_values = isinstance(exc, _BY_VALUES) and codes[-1].co_filename == fn.__code__.co_filename
    if fn.__code__ in codes and not by_values and not isinstance(exc, MemoryError):
        setattr(exc, REFUSED, True)


def _refused(exc: Exception) -> Exception:
    setattr(exc, REFUSED, True)
    return exc


def enter_function() -> bool:
    """Called where a host function of a candidate begins: none may run while one of its launches does."""
    if STATE.running:
        WIRE.note(HackFlag.HIDDEN_WORK, "a function of the source that is no kernel runs inside a launch")
        raise RuntimeError("host code cannot run inside a launch")
    return False


def _checked(original: Callable[..., Any]) -> Callable[..., Any]:
    """Whatever goes wrong while a kernel is read is a refusal, and so is a kernel that was not checked."""

    @wraps(original)
    def rewrite(self: Any) -> Any:
        try:
            kernel = original(self)
            if kernel not in _APPROVED:
                raise _unapproved(self.fn)
            if (text := _APPROVED[kernel]) is not None:
                text.recheck()
            return kernel
        except Exception as exc:  # reading fails in any way, and goes on to whoever launched the kernel
            _refused(exc)
            raise

    return rewrite


def _rewritten(original: Callable[..., Any]) -> Callable[..., Any]:
    """Make kernels from their checked definitions; Triton's own functions are made as Triton does."""

    @wraps(original)
    def rewrite_ast(self: Any) -> Any:
        if triton_objects.is_library(self.fn):
            return original(self)
        text = KernelText(self.fn)
        text.settings = dict(self.kwargs)
        _APPROVED[text.kernel] = text
        return text.kernel

    return rewrite_ast


def _combining(original: Callable[..., Any]) -> Callable[..., Any]:
    """A reduction or scan runs the checked form of its combining function, not the plain one."""

    @wraps(original)
    def initialise(self: Any, axis: Any, combine_fn: Any, *args: Any, **kwargs: Any) -> None:
        if not isinstance(combine_fn, InterpretedFunction):
            raise _refused(NotTriton("a combining function must be under @triton.jit"))
        if not triton_objects.is_library(combine_fn.fn):
            combine_fn = SimpleNamespace(fn=combine_fn.rewrite())
        original(self, axis, combine_fn, *args, **kwargs)

    return initialise


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


def _compile_own(self: Any, tree: Any) -> Any:
    """Compile one of Triton's own functions; its module gets those of the interpreter's objects that it needs."""
    for name in ("interpreter_semantic", "_InterpreterComparison"):
        if hasattr(interpreter, name):
            self.fn.__globals__.setdefault(name, getattr(interpreter, name))
    namespace = {**self.kwargs}
    exec(compile(tree, filename=self.filename, mode="exec"), self.fn.__globals__, namespace)
    kernel = namespace[self.fn.__name__]
    marks = {name: "constexpr" if "constexpr" in str(mark) else mark for name, mark in kernel.__annotations__.items()}
    kernel.__annotations__ = marks
    _APPROVED[kernel] = None
    return kernel


def _patched_whole(original: Callable[..., Any]) -> Callable[..., Any]:
    """Patch all of triton.language for a launch, whatever names the kernel's file uses for it."""
    everything = SimpleNamespace(__globals__={"tl": tl, "core": tl.core})

    def patch(fn: Any) -> Any:
        return original(everything)

    return patch
