# SPDX-License-Identifier: Apache-2.0
"""Hands launches to the process that executes compiled kernels, with the memory that they may touch."""

from __future__ import annotations

import inspect
from typing import Any, cast

from triton.compiler.errors import CompileTimeAssertionFailure

from verl_kernel.env.compilation.outcome import PASSED_OVER
from verl_kernel.env.devices.compiled.link import Link, NotRun
from verl_kernel.env.devices.cpu.counting import STATE
from verl_kernel.env.devices.cpu.launch_variants import VARIANTS
from verl_kernel.env.devices.cpu.native_work import NativeWork
from verl_kernel.env.devices.cpu.stores import STORES
from verl_kernel.env.devices.launch_requests import Range
from verl_kernel.env.executor.flow.origins import Kind
from verl_kernel.env.ipc.channel import Channel
from verl_kernel.env.ipc.execution_messages import Work
from verl_kernel.env.ipc.shared_memory import SharedMemory
from verl_kernel.env.trace import Step


class NativeLaunches:
    """The link of this process to the executing one.

    Args:
        link: to it.
        arena: memory that both have.
    """

    def __init__(self, link: Channel, arena: SharedMemory) -> None:
        self._link = Link(link, arena)

    def launch(self, executor: Any, *args: Any, **kwargs: Any) -> None:
        """Run a launch there (in place of `GridExecutor.__call__`); in an ablation, leave out one that it concerns.

        Raises:
            NotRun: it did not run to its end.
            MemoryError: its tensors do not fit into the memory that is granted.
        """
        STORES.begin((executor.fn.__code__.co_filename, executor.fn.__name__))
        kept = cast("list[Kind]", [*(STORES.kept or ())]) if STORES.leaves_out else None
        if kept == []:
            return
        known = inspect.signature(executor.fn).parameters
        given = {name: value for name, value in kwargs.items() if name in known}
        bound = inspect.getcallargs(executor.fn, *args, **given)
        values = {name: value for name, value in bound.items() if name not in executor.constexprs}
        unit, is_tried = VARIANTS.latest(), STORES.is_paused
        reply, places = self._link.run(unit, executor.grid, values, STATE.ranges, is_tried, kept)
        if reply["failure"] is not None:
            raise _failed(reply["failure"])
        if (told := reply["work"]) is not None:
            STATE.native_work = _work(told, places)
            STORES.stored, STORES.computed = told["stored"], told["computed"]


def _failed(message: str) -> Exception:
    """What an autotuner takes for a configuration that is none, where one is tried; else a failed launch."""
    is_passed_over = STORES.is_paused and message.startswith(PASSED_OVER)
    failure: Exception = CompileTimeAssertionFailure(None, None, message) if is_passed_over else NotRun(message)
    return failure


def _work(told: Work, places: list[Range]) -> NativeWork:
    """What a launch did, with its tensors."""
    tensors = dict(zip(STATE.ranges, STATE.tensors, strict=True))
    reads, writes = (
        [(tensors[places[number]], size) for number, size in some] for some in (told["reads"], told["writes"])
    )
    steps = tuple(map(Step.from_json, told["steps"]))
    return NativeWork((told["bytes"], told["flops"], told["half_flops"]), steps, (reads, writes))
