# SPDX-License-Identifier: Apache-2.0
"""The runner's part of timing on a GPU; each request is one step.

`offer` moves inputs to the device, where they wait for their call. `call` runs forwards on the offered inputs, in
order, each prepared and timed by a protocol of the stopwatch; a copy of each output stays on the device and its form is
in the reply. `null` does the same without the forwards. `output` copies one of the kept outputs into shared memory.
`profile` runs one forward under torch's profiler and reports device kernels only.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from verl_kernel.env.devices.cuda.stopwatch import Stopwatch, TimedForward, warm
from verl_kernel.env.ipc.shared_memory import SharedMemory, TensorSpec, flatten, unflatten
from verl_kernel.env.trace import dump_events

if TYPE_CHECKING:  # devices import clocks
    from verl_kernel.env.devices.base import DeviceBackend
    from verl_kernel.env.ipc.messages import Form, OfferStep, Place, TimeReply, TimeStep

_SYNC_MARKS = ("Context Sync", "Stream Sync", "Event Sync", "Stream Wait Event")
Put = Callable[[Any, list[torch.Tensor], "list[Place]"], "Form"]
"""Copies an output to its places in the shared memory and returns its form, given the inputs."""


@dataclass(frozen=True)
class _Offer:
    """Inputs on the device and the places of their output in the shared memory."""

    args: Any
    kwargs: Any
    inputs: list[torch.Tensor]
    places: list[Place]


@dataclass(frozen=True)
class _Output:
    """An output of a forward: its form, and copies that no later forward can change."""

    form: Form
    tensors: tuple[torch.Tensor, ...]
    places: list[Place]


class TimedCalls:
    """Answers the requests of a CUDA clock.

    Args:
        device: device of the candidate.
        memory: memory shared with the judge.
        put: copies an output there.
        stopwatch: stopwatch created before the candidate is loaded.
    """

    def __init__(self, device: DeviceBackend, memory: SharedMemory, put: Put, stopwatch: Stopwatch) -> None:
        self._device, self._memory, self._put, self._stopwatch = device, memory, put, stopwatch
        self._offers: deque[_Offer] = deque()
        self._outputs: list[_Output] = []
        self._blanks: list[torch.Tensor] = []

    def answer(self, request: TimeStep, model: Callable[..., Any]) -> TimeReply:
        """Run one step and return the reply."""
        if request["step"] == "offer":
            return self._offer(request)
        if request["step"] == "output":
            return self._output(request["number"])
        if request["step"] == "profile":
            return self._profiled(model)
        runs, calls = range(request["count"]), request["step"] == "call"
        forwards = [self._forward(model, request["protocol"]) if calls else self._nothing() for _ in runs]
        with torch.no_grad():
            self._outputs, mean_ms = self._stopwatch.many(request["protocol"], forwards)
        return {"inner_ms": mean_ms, "forms": [output.form for output in self._outputs]}

    def _offer(self, request: OfferStep) -> TimeReply:
        tensors = [self._device.to_device(self._view(spec)) for spec in request["specs"]]
        args, kwargs = unflatten(request["inputs"], tensors)
        self._offers.append(_Offer(args, kwargs, tensors, request["outputs"]))
        if not self._blanks:
            self._blanks = [self._device.to_device(self._view(spec)) for spec in request["outputs"]]
        return {}

    def _forward(self, model: Callable[..., Any], protocol: str) -> TimedForward[Any]:
        offer = self._offers.popleft()

        def ready() -> None:
            self._device.poison(self._blanks)
            if protocol == "kernelgym":
                warm(offer.inputs)

        return TimedForward(
            run=lambda: model(*offer.args, **offer.kwargs),
            ready=ready,
            keep=lambda output: self._kept(output, offer.inputs, offer.places),
        )

    def _nothing(self) -> TimedForward[Any]:
        return TimedForward(
            run=lambda: None,
            ready=lambda: self._device.poison(self._blanks),
            keep=lambda _: self._kept(tuple(self._blanks), [], []),
        )

    def _kept(self, output: Any, inputs: list[torch.Tensor], places: list[Place]) -> _Output:
        tensors: list[torch.Tensor] = []
        with suppress(TypeError):  # the judge sees from the form that this is not a valid output
            flatten(output, tensors)
        copies = tuple(tensor.detach().clone() for tensor in tensors)
        return _Output(self._put(output, inputs, []), copies, places)

    def _output(self, number: int) -> TimeReply:
        output = self._outputs[number]
        self._put(output.tensors, [], output.places)
        return {}

    def _view(self, spec: Place) -> torch.Tensor:
        return self._memory.view(TensorSpec.from_json(spec))

    def _profiled(self, model: Callable[..., Any]) -> TimeReply:
        offer = self._offers.popleft()
        with torch.no_grad(), device_kernels() as kernels, self._device.record() as events:
            model(*offer.args, **offer.kwargs)
            self._stopwatch.wait()
        return {"kernels": kernels, "events": dump_events(events)}


@contextmanager
def device_kernels() -> Iterator[dict[str, list[float]]]:
    """Count, by name, the device kernels in the context and their total milliseconds; filled at its end."""
    from torch.profiler import ProfilerActivity, profile

    kernels: dict[str, list[float]] = {}
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        yield kernels
    kernels.update(summed(profiler.events()))


def summed(events: Any) -> dict[str, list[float]]:
    """Return, by name, count and total milliseconds of the device kernels among a profiler's events."""
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
