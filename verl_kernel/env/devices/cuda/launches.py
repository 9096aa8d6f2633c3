# SPDX-License-Identifier: Apache-2.0
"""Records Triton launches on a GPU: kernel, file, grid and exact name.

It needs two sources, because each misses something. `JITFunction.run` knows the function, its file and its grid, also
of a launch that raises. The launch hook runs inside Triton's launcher, so it knows the name under which a profiler
sees the kernel, also of a launch that bypasses `JITFunction.run`. Nothing is wrapped outside the contexts below, so
timed calls run without overhead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import triton
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from verl_kernel.env.trace import TraceEvent


class EventList(list[TraceEvent]):
    """Events in order; drops events appended while muted, that is while an autotuner tries configurations."""

    muted = False

    def append(self, event: TraceEvent) -> None:
        """Add an event unless muted."""
        if not self.muted:
            super().append(event)


class _Launch:
    """A launch in progress."""

    def __init__(self) -> None:
        self.name = ""
        self.grid: Any = ()


class LaunchRecorder:
    """Appends an event per launch to `events` and mutes them while an autotuner tries configurations."""

    def __init__(self, events: EventList) -> None:
        self._events = events
        self._current: _Launch | None = None

    def wrap_run(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap `JITFunction.run` so that launches are recorded."""

        @wraps(original)
        def run(function: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
            if warmup:
                return original(function, *args, grid=grid, warmup=warmup, **kwargs)
            outer, launch = self._current, _Launch()
            self._current, failed = launch, True
            try:
                result = original(function, *args, grid=_noted(grid, launch), warmup=warmup, **kwargs)
                failed = False
            finally:
                self._current = outer
                self._append(function, launch, failed)
            return result

        return run

    def wrap_bench(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap `Autotuner._bench` so that events are muted: its launches and ops are not the program's work."""

        @wraps(original)
        def bench(*args: Any, **kwargs: Any) -> Any:
            outer, self._events.muted = self._events.muted, True
            try:
                return original(*args, **kwargs)
            finally:
                self._events.muted = outer

        return bench

    def on_launch(self, metadata: Any) -> None:
        """Handle Triton's launch hook."""
        name = str(metadata.data["name"])  # not get(): that would run the program's own launch_metadata
        if self._current is not None:
            self._current.name = name
        else:
            self._events.append(TraceEvent("launch", name))  # it bypassed JITFunction.run: its file is unknown

    def _append(self, function: Any, launch: _Launch, failed: bool) -> None:
        grid = _sizes(launch.grid)
        if 0 in grid and not failed:  # a GPU starts nothing for an empty grid
            return
        name = launch.name or str(function.fn.__name__)
        source = str(function.fn.__code__.co_filename)
        self._events.append(TraceEvent("launch", name, grid, source=source, failed=failed))


@contextmanager
def recording(events: EventList) -> Iterator[None]:
    """Record the launches in the context."""
    recorder = LaunchRecorder(events)
    with (
        _replaced(JITFunction, "run", recorder.wrap_run(JITFunction.run)),
        _replaced(Autotuner, "_bench", recorder.wrap_bench(Autotuner._bench)),
        _hooked(recorder.on_launch),
    ):
        yield


@contextmanager
def suppressing() -> Iterator[None]:
    """Turn launches in the context into no-ops; a launch that bypasses `JITFunction.run` raises instead."""
    original = JITFunction.run

    @wraps(original)
    def run(function: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        return original(function, *args, grid=grid, warmup=warmup, **kwargs) if warmup else None

    with _replaced(JITFunction, "run", run), _hooked(_refuse):
        yield


def _refuse(metadata: Any) -> None:
    raise RuntimeError("a kernel was launched past its jit function")


def _noted(grid: Any, launch: _Launch) -> Any:
    """Return the grid and store it in `launch`; if it is a function, its result is stored when Triton calls it."""
    if not callable(grid):
        launch.grid = grid
        return grid

    def sized(meta: Any) -> Any:
        launch.grid = grid(meta)
        return launch.grid

    return sized


def _sizes(grid: Any) -> tuple[int, ...]:
    """Return the three sizes of a grid; () if it is no valid grid."""
    try:
        sizes = tuple(max(int(size), 0) for size in grid)
    except (TypeError, ValueError):
        return ()
    return (*sizes, 1, 1)[:3] if sizes and len(sizes) <= 3 else ()


@contextmanager
def _replaced(owner: type, name: str, function: Callable[..., Any]) -> Iterator[None]:
    original = owner.__dict__[name]
    setattr(owner, name, function)
    try:
        yield
    finally:
        setattr(owner, name, original)


@contextmanager
def _hooked(hook: Callable[[Any], None]) -> Iterator[None]:
    """Call a hook before every launch."""
    chain = triton.knobs.runtime.launch_enter_hook
    chain.add(hook)
    try:
        yield
    finally:
        chain.remove(hook)
