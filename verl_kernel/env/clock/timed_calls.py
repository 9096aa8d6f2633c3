# SPDX-License-Identifier: Apache-2.0
"""The runner's part of timing on a GPU: one request, one step.

`offer`: inputs to the device, stale memory poisoned, L2 chilled. `call`: one forward between events, then its output
into the arena, so that the judge finds it there with the reply. `null`: the same without the forward. `profile`: one
forward under torch's profiler, device kernels only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from verl_kernel.env.arena import Arena, TensorSpec, unflatten
from verl_kernel.env.clock.stopwatch import Stopwatch
from verl_kernel.env.trace import dump_events

if TYPE_CHECKING:  # devices import clocks
    from verl_kernel.env.channel import Message
    from verl_kernel.env.devices.base import DeviceBackend

_SYNC_MARKS = ("Context Sync", "Stream Sync", "Event Sync", "Stream Wait Event")
Put = Callable[[Any, list[torch.Tensor], list[dict[str, Any]]], "Message"]
"""Copies an output to its places in the arena and says what it is, given the inputs."""


class TimedCalls:
    """Answers the requests of a CUDA clock.

    Args:
        device: where the candidate runs.
        arena: what the judge shares.
        put: what copies an output there.
        stopwatch: made before the candidate is loaded.
    """

    def __init__(self, device: DeviceBackend, arena: Arena, put: Put, stopwatch: Stopwatch) -> None:
        self._device, self._arena, self._put, self._stopwatch = device, arena, put, stopwatch
        self._call: tuple[Any, Any] = ((), {})
        self._inputs: list[torch.Tensor] = []
        self._places: list[dict[str, Any]] = []
        self._blanks: list[torch.Tensor] = []

    def answer(self, request: Message, model: Callable[..., Any]) -> Message:
        """The reply to one step."""
        step = request["step"]
        if step == "offer":
            return self._offer(request)
        if step == "call":
            return self._timed(model)
        if step == "null":
            return self._null()
        return self._profiled(model)

    def _offer(self, request: Message) -> Message:
        tensors = [self._device.to_device(self._view(spec)) for spec in request["specs"]]
        self._call, self._inputs, self._places = unflatten(request["inputs"], tensors), tensors, request["outputs"]
        if not self._blanks:
            self._blanks = [self._device.to_device(self._view(spec)) for spec in self._places]
        self._device.poison(self._blanks)
        self._stopwatch.chill()
        return {"offered": True}

    def _timed(self, model: Callable[..., Any]) -> Message:
        (args, kwargs), self._call = self._call, ((), {})
        with torch.no_grad():
            output, inner_ms = self._stopwatch.time(lambda: model(*args, **kwargs))
        inputs, self._inputs = self._inputs, []
        return {**self._put(output, inputs, self._places), "inner_ms": inner_ms}

    def _null(self) -> Message:
        _, inner_ms = self._stopwatch.time(lambda: None)
        return {**self._put(self._blanks, self._inputs, self._places), "inner_ms": inner_ms}

    def _view(self, spec: dict[str, Any]) -> torch.Tensor:
        return self._arena.view(TensorSpec.from_json(spec))

    def _profiled(self, model: Callable[..., Any]) -> Message:
        (args, kwargs), self._call = self._call, ((), {})
        with torch.no_grad(), device_kernels() as kernels, self._device.record() as events:
            model(*args, **kwargs)
            self._stopwatch.wait()
        return {"kernels": kernels, "events": dump_events(events)}


@contextmanager
def device_kernels() -> Iterator[dict[str, list[float]]]:
    """Count and total milliseconds per name of everything that runs on the device inside; filled on leaving."""
    from torch.profiler import ProfilerActivity, profile

    kernels: dict[str, list[float]] = {}
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        yield kernels
    kernels.update(summed(profiler.events()))


def summed(events: Any) -> dict[str, list[float]]:
    """Count and total milliseconds per name of the device kernels among a profiler's events."""
    from torch.autograd import DeviceType  # type: ignore[attr-defined]

    kernels: dict[str, list[float]] = defaultdict(lambda: [0, 0.0])
    for event in events or ():
        if (
            event.device_type == DeviceType.CUDA
            and not getattr(event, "is_user_annotation", False)
            and event.name not in _SYNC_MARKS
        ):
            kernels[event.name][0] += 1
            kernels[event.name][1] += event.time_range.elapsed_us() / 1e3
    return dict(kernels)
