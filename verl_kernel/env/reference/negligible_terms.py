# SPDX-License-Identifier: Apache-2.0
"""Finds ops of a reference without measurable effect: with their result replaced by zeros, the output still agrees.

A program may leave such a term out and be right (a residual of 1e-9, a factor that rounds to one). No comparison of
outputs can detect that, so the task gets a flag.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch

from verl_kernel.env.ops.dispatch_modes import OpMode
from verl_kernel.env.ops.table import is_view
from verl_kernel.env.tamper.trace_checks import is_moving
from verl_kernel.env.trace import TraceEvent

INSENSITIVE = "insensitive:"
"""Prefix of the flag of a task whose output agrees without an op; the op's name, without namespace, follows."""
Output = TypeVar("Output")
_MOST_OPS = 24
"""Ops tried, the first of a forward: each takes a forward for each of the inputs."""
_MOST_WORK = 50_000_000_000
"""Sum of bytes and operations of all forwards above which ops are not tried: that would take many seconds."""


def ineffective(
    events: Sequence[TraceEvent], runs: Sequence[Callable[[], Output]], agrees: Callable[[int, Output], bool]
) -> Iterator[str]:
    """Yield names of ops without effect among the first `_MOST_OPS` of a forward.

    Args:
        events: trace of the forward.
        runs: functions that run the forward, each on different inputs.
        agrees: whether the output of the run of this number agrees with the expected one.
    """
    forwards = min(len(events), _MOST_OPS)
    if forwards * sum(event.bytes + event.flops for event in events) > _MOST_WORK:
        return
    for number in range(_MOST_OPS):
        without = [_Without(number) for _ in runs]
        agree = all(agrees(index, _run(run, without[index])) for index, run in enumerate(runs))
        if not without[0].name:
            return
        if agree:
            yield without[0].name


def _run(run: Callable[[], Output], without: _Without) -> Output:
    with without:
        return run()


class _Without(OpMode):
    """Replaces the result of the computing op of a given number by zeros."""

    def __init__(self, number: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._remaining = number
        self.name = ""
        """Name of the op; empty where the forward has fewer."""

    def run_op(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        result = func(*args, **kwargs)
        first = result[0] if isinstance(result, tuple) and result else result
        if isinstance(first, torch.Tensor) and first.is_floating_point() and not _is_plain(func):
            if self._remaining == 0:
                self.name = func._schema.name
                first.zero_()
            self._remaining -= 1
        return result


def _is_plain(func: Any) -> bool:
    """Whether an op only views, allocates or moves: what it returns was computed elsewhere."""
    return is_view(func) or is_moving(func._schema.name) or func._schema.name.startswith("aten::empty")
