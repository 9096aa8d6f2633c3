# SPDX-License-Identifier: Apache-2.0
"""Describes the launches of a program, has another process execute them, and records them.

Import this module only in a process in which Triton launches nothing itself: `install` replaces `JITFunction.run`.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from triton.compiler.errors import CompileTimeAssertionFailure
from triton.runtime.jit import JITFunction

from verl_kernel.env.compilation.description import Unit
from verl_kernel.env.compilation.outcome import PASSED_OVER
from verl_kernel.env.devices.cpu.descriptions import Descriptions
from verl_kernel.env.devices.cpu.execution_link import NotRun, Range, grid_sizes
from verl_kernel.env.devices.cpu.kernel_source import is_kernel
from verl_kernel.env.devices.cpu.launch_state import STATE
from verl_kernel.env.devices.cpu.unwritten_memory import ALLOCATIONS
from verl_kernel.env.devices.op_recorder import OpRecorder, Use
from verl_kernel.env.emulator.flow.origins import Kind
from verl_kernel.env.ipc.execution_messages import Work
from verl_kernel.env.machine.constants import constant
from verl_kernel.env.tamper.hack_flags import HackFlag
from verl_kernel.env.tamper.tripwire import WIRE
from verl_kernel.env.trace import Step, TraceEvent

DESCRIPTIONS = Descriptions()
"""Descriptions of this process's launches."""


def install() -> None:
    """Redirect launches to the executing process (once per process)."""
    JITFunction.run = _launch


def _launch(self: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> None:
    """Launch a kernel (in place of `JITFunction.run`).

    Raises:
        NotRun: the launch did not run to its end.
        NotTriton: the candidate's source does not define the kernel.
    """
    if STATE.suppressed or warmup:  # a warm-up only compiles and changes no tensors
        return
    if not is_kernel(self):
        # check: launch-is-of-a-kernel
        WIRE.note(HackFlag.UNAPPROVED_LAUNCH, f"a {type(self).__name__} is no kernel of triton.jit")
        raise RuntimeError("only functions under @triton.jit can be launched")
    for hook in self.pre_run_hooks:
        hook(*args, **options)
    bound = _bound(self, args, options)
    sizes = grid_sizes(grid(bound) if callable(grid) else grid)
    start = time.thread_time_ns()  # hooks and the grid function above are the program's own work
    try:
        described = DESCRIPTIONS.describe(self, args, options)
        DESCRIPTIONS.note(described, STATE.is_tried)
        _run(self, described.unit, sizes, bound)
    finally:
        STATE.spent_ns += time.thread_time_ns() - start


def _bound(kernel: Any, args: tuple[Any, ...], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the kernel's parameters, by name."""
    named = {name: value for name, value in options.items() if name in kernel.arg_names}
    return inspect.getcallargs(kernel.fn, *args, **named)


def _run(kernel: Any, unit: Unit, grid: tuple[int, ...], bound: Mapping[str, Any]) -> None:
    work: Work | None = None
    areas: list[Range] = []
    failed = True
    kept_kinds = STATE.begin_launch(bound.values())
    try:
        if kept_kinds != []:
            work, areas = _executed(kernel, unit, grid, bound, kept_kinds)
        failed = False
    finally:
        _record(kernel, grid, failed, work, areas)
        STATE.tensors = []  # keep no reference: the program's tensors are freed when the program drops them


def _executed(
    kernel: Any, unit: Unit, grid: tuple[int, ...], bound: Mapping[str, Any], kept_kinds: list[Kind] | None
) -> tuple[Work | None, list[Range]]:
    if STATE.link is None:
        raise NotRun("this process has nothing that executes kernels")
    constants = {item.name for item in kernel.params if item.is_constexpr}
    values = {name: value for name, value in bound.items() if name not in constants}
    fresh_areas = partial(ALLOCATIONS.report, STATE.tensors, STATE.ranges)
    work, areas = STATE.link.run(
        unit,
        grid=grid,
        arguments=values,
        views=STATE.views,
        is_tried=STATE.is_tried,
        kept_kinds=kept_kinds,
        tables=STATE.tables,
        fresh_areas=fresh_areas,
    )
    if work["failure"] is not None:
        raise _failed(work["failure"])
    changed = {areas[number] for number in work["changed_again"]}
    STATE.changed_again |= {
        name
        for name, value in values.items()
        if changed and isinstance(value, torch.Tensor) and STATE.granted.memory(value) in changed
    }
    return work["work"], areas


def _failed(message: str) -> Exception:
    """Return an error that makes an autotuner skip an invalid configuration it tries; otherwise a failed launch."""
    is_passed_over = STATE.is_tried and message.startswith(PASSED_OVER)
    failure: Exception = CompileTimeAssertionFailure(None, None, message) if is_passed_over else NotRun(message)
    return failure


def _record(kernel: Any, grid: tuple[int, ...], failed: bool, work: Work | None, areas: list[Range]) -> None:
    if STATE.events is None or (0 in grid and not failed):  # a GPU starts nothing for an empty grid
        return
    code, host = kernel.fn.__code__, int(constant("triton_host_us"))
    event = TraceEvent(
        "launch", kernel.fn.__name__, grid, 0, 0, 0, source=code.co_filename, failed=failed, host_us=host
    )
    STATE.events.append(event if work is None else _with_work(event, work, areas))


def _with_work(event: TraceEvent, work: Work, areas: list[Range]) -> TraceEvent:
    tensors = dict(zip(STATE.ranges, STATE.tensors, strict=True))
    reads = [_use(tensors[areas[number]], *moved) for number, *moved in work["reads"]]
    writes = [_use(tensors[areas[number]], *moved) for number, *moved in work["writes"]]
    l2 = None if STATE.is_tried or OpRecorder.current is None else OpRecorder.current.l2
    recent, touched = ((), ()) if l2 is None else (l2.add(reads, writes), l2.touched(reads, writes))
    steps = tuple(map(Step.from_json, work["steps"]))
    return replace(
        event,
        bytes=work["bytes"],
        flops=work["flops"],
        half_flops=work["half_flops"],
        steps=steps,
        stored=work["stored"],
        computed=work["computed"],
        recent=recent,
        touched=touched,
        variant=work["variant"],
    )


def _use(tensor: torch.Tensor, size: int, first: int, end: int) -> Use:
    """Return what a launch moved of a tensor, given where in the tensor's memory."""
    start = tensor.storage_offset() * tensor.element_size() if tensor.layout is torch.strided else 0
    return tensor, size, range(first - start, end - start)
