# SPDX-License-Identifier: Apache-2.0
"""Records every torch op that needs a device kernel, with its counted cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from verl_kernel.env.clock.op_cost import op_cost
from verl_kernel.env.devices.tripwire import WIRE
from verl_kernel.env.trace import TraceEvent

_NAMESPACES = ("aten", "prims", "prim", "profiler")


class OpRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Appends one event per op to `events`.

    Args:
        events: list to append to.
        is_marshalling: says whether Triton's interpreter is moving a kernel's arguments, whose copies are not
            the program's work.
    """

    def __init__(self, events: list[TraceEvent], is_marshalling: Callable[[], bool]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._events = events
        self._is_marshalling = is_marshalling
        self._depth = 0
        self.spent_ns = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # or torch imports its compiler, 80 MB and a second in every process that records

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs, start = kwargs or {}, time.thread_time_ns()
        self._depth += 1
        try:
            return self._run(func, types, args, kwargs)
        finally:
            self._depth -= 1
            if not self._depth and not self._is_marshalling():
                self.spent_ns += time.thread_time_ns() - start

    def _run(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        _watch(func, types)
        with self:  # in inference mode composite ops arrive whole; their parts are what a device runs
            result = func.decompose(*args, **kwargs)
        if result is not NotImplemented:
            return result
        result = func(*args, **kwargs)
        name = func._schema.name
        if not (name == "aten::copy_" and self._is_marshalling()):
            cost = op_cost(func, args, kwargs, result)
            if cost is not None:
                label = f"{name}.{func._overloadname}" if func._overloadname != "default" else name
                event = TraceEvent("op", label, (), cost.bytes, cost.flops, cost.half_flops)
                self._events.append(event)
        return result


def _watch(func: Any, types: Any) -> None:
    """Note what computes beneath this recorder: ops of others, tensor classes with a dispatch of their own."""
    if func.namespace not in _NAMESPACES:
        WIRE.note("foreign_op", f"{func.name()} is not an op of torch")
    foreign = [kind for kind in types if kind is not torch.Tensor]  # views of another dtype name it themselves
    if foreign:
        WIRE.note("foreign_op", f"a tensor of class {foreign[0].__name__} computes by itself")
    if func._schema.name == "aten::_local_scalar_dense":
        WIRE.read(1, "Tensor.item")
