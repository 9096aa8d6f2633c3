# SPDX-License-Identifier: Apache-2.0
"""Records every torch op that needs a device kernel, with its counted cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from verl_kernel.env.clock.op_cost import op_cost
from verl_kernel.env.trace import TraceEvent


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

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nobody compiles here; the default makes torch import its compiler, 75 MB in each process."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
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
