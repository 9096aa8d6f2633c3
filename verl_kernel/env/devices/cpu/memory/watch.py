# SPDX-License-Identifier: Apache-2.0
"""Whether this process checks memory, and the launch that it is checking."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from verl_kernel.env.devices.cpu.counting import STATE, OutOfBounds
from verl_kernel.env.devices.cpu.memory.access import Kind, find_place, line_of
from verl_kernel.env.devices.cpu.memory.allocations import ALLOCATIONS, AllocationWatch
from verl_kernel.env.devices.cpu.memory.areas import Areas
from verl_kernel.env.devices.cpu.memory.findings import FINDINGS, Finding
from verl_kernel.env.devices.cpu.memory.launch_log import LaunchLog


class Watch:
    """The checks of this process (the interpreter runs one kernel at a time)."""

    def __init__(self) -> None:
        self.is_on = False
        self.log: LaunchLog | None = None
        """Of the launch that runs, if it is checked."""

    @contextmanager
    def launch(self, executor: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[LaunchLog]:
        """Around a launch whose arguments and grid were checked."""
        fn = executor.fn
        given = {name: value for name, value in kwargs.items() if name in inspect.signature(fn).parameters}
        areas = Areas(inspect.getcallargs(fn, *args, **given), STATE.ranges)
        self.log = LaunchLog(fn.__name__, fn.__code__.co_filename, executor.grid, areas)
        try:
            yield self.log
        finally:
            log, self.log = self.log, None
            log.end()

    def out_of_bounds(self, kind: Kind, exc: OutOfBounds) -> None:
        """An access of the launch that runs leaves its tensors; it does not happen."""
        if (log := self.log) is None:
            return
        area = log.areas.nearest(exc.address if exc.inside is None else exc.inside)
        argument, offset = (None, None) if area is None else area.name(exc.address)
        name = "out_of_bounds_load" if kind is Kind.LOAD else "out_of_bounds_store"
        line, program = line_of(find_place(log.file)), log.index(log.program)
        FINDINGS.note(Finding(name, log.kernel, line, argument, offset, program, kind.word))


WATCH = Watch()
"""Those of this process."""


@contextmanager
def checking() -> Iterator[None]:
    """Check the launches inside."""
    WATCH.is_on = True
    ALLOCATIONS.tidy()
    try:
        with AllocationWatch():  # type: ignore[no-untyped-call]
            yield
    finally:
        WATCH.is_on = False
