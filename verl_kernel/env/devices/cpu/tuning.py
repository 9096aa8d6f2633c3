# SPDX-License-Identifier: Apache-2.0
"""Autotuning under the interpreter: every configuration is launched once and timed by the simulated clock.

A launch that is being tried is no part of the forward's trace and leaves nothing behind: its tensors are as they were
before, bit for bit. So whatever else is launched in its place is free but useless; torch ops of hooks stay charged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch
from triton.compiler.errors import CompileTimeAssertionFailure
from triton.runtime.autotuner import Autotuner
from triton.runtime.interpreter import GridExecutor

from verl_kernel.env.devices.cpu.counting import STATE
from verl_kernel.env.devices.cpu.stores import STORES
from verl_kernel.env.machine.machine import Machine
from verl_kernel.env.machine.timeline import time_ms
from verl_kernel.env.trace import TraceEvent

MOST_CONFIGURATIONS = 64
"""Configurations of a kernel that are tried, in the order of the list or of the program's own pruning."""
_MACHINE = Machine.of("h100")


def simulated_ms(call: Callable[[], Any], quantiles: Any = None, **options: Any) -> Any:
    """What the launches in `call` take; as many equal times as `quantiles` asks for."""
    with _trying() as events:
        call()
    milliseconds = time_ms(events, _MACHINE)
    return milliseconds if quantiles is None else [milliseconds] * len(quantiles)


def install() -> None:
    """Let autotuners choose by the simulated clock (once per process, before the launches are wrapped)."""
    Autotuner.do_bench = property(lambda self: simulated_ms)
    Autotuner.prune_configs = _bounded(Autotuner.prune_configs)
    GridExecutor.__call__ = _restoring(GridExecutor.__call__)


@contextmanager
def _trying() -> Iterator[list[TraceEvent]]:
    """Launches inside are collected apart, ablated or not."""
    outer = STATE.events, STATE.suppressed, STORES.kept, STORES.is_paused
    events: list[TraceEvent] = []
    STATE.events, STATE.suppressed, STORES.kept, STORES.is_paused = events, False, None, True
    try:
        yield events
    finally:
        STATE.events, STATE.suppressed, STORES.kept, STORES.is_paused = outer


def _bounded(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def prune_configs(self: Any, *args: Any, **kwargs: Any) -> Any:
        return list(original(self, *args, **kwargs))[:MOST_CONFIGURATIONS]

    return prune_configs


def _restoring(original: Callable[..., Any]) -> Callable[..., Any]:
    """A launch that gives its tensors back as they were while configurations are tried."""

    @wraps(original)
    def launch(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not STORES.is_paused:
            return original(self, *args, **kwargs)
        tensors = [tensor for tensor in _tensors((*args, *kwargs.values())) if tensor.numel()]
        with _no_work():
            storages = {tensor.untyped_storage().data_ptr(): _bytes(tensor) for tensor in tensors}
            copies = [(whole, torch.empty_like(whole).copy_(whole)) for whole in storages.values()]
        try:
            return original(self, *args, **kwargs)
        except AssertionError as exc:
            raise CompileTimeAssertionFailure(None, None, str(exc)) from exc
        finally:
            with _no_work():
                for whole, copy in copies:
                    whole.copy_(copy)

    return launch


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Tensors among a launch's arguments, those under wrappers and descriptors included."""
    for value in values:
        if isinstance(value, tuple | list):
            yield from _tensors(value)
        elif isinstance(
            tensor := value if isinstance(value, torch.Tensor) else getattr(value, "base", None), torch.Tensor
        ):
            yield tensor


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())


@contextmanager
def _no_work() -> Iterator[None]:
    """Copies inside are no work of the program's."""
    STATE.marshalling = True
    try:
        yield
    finally:
        STATE.marshalling = False
