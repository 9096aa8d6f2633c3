# SPDX-License-Identifier: Apache-2.0
"""The clock of a GPU: candidate and reference in turns on the same device, until the medians are known to 1 %.

Each round draws fresh inputs and times both sides on them by every protocol asked for (`rounds`, `stopwatch`). The
candidate's time is the runner's claim as far as the judge's own clock bears it out (`crosscheck`), its outputs are
compared as in the correctness trials, and no cold median may lie under the roofline. The device is locked from the
first warm-up to the last profile.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from weakref import WeakKeyDictionary

import torch

from verl_kernel.env.clocks.base import Measurement, Session
from verl_kernel.env.clocks.cuda.profile import load_kernels, profile_kernels
from verl_kernel.env.clocks.cuda.request_size import RequestSize
from verl_kernel.env.clocks.cuda.roofline import floor_ms, measured_roofline_ms, peak_gbs
from verl_kernel.env.clocks.cuda.rounds import Rounds
from verl_kernel.env.clocks.cuda.samples import Samples
from verl_kernel.env.clocks.cuda.sides import Sides
from verl_kernel.env.clocks.profile import Profile
from verl_kernel.env.clocks.statistics import timing
from verl_kernel.env.comparison.float32 import precision
from verl_kernel.env.devices.cuda.device import CudaDevice
from verl_kernel.env.devices.cuda.facts import gpu_state
from verl_kernel.env.devices.cuda.stopwatch import Stopwatch
from verl_kernel.env.devices.cuda.throttle import Throttle
from verl_kernel.env.ipc.tensors import place
from verl_kernel.env.ops.call import tensors_in
from verl_kernel.env.ops.reads import bytes_read
from verl_kernel.env.options import GymOptions
from verl_kernel.env.reference.reference import Reference
from verl_kernel.env.reference.trial import Trial
from verl_kernel.env.trace import load_events

_COMPILED_TRIAL = (1 << 16) - 1
_WARM_UPS, _PROFILES = 3, 2


class CudaClock:
    """Measures on the current device.

    Args:
        options: of the gym; `run_timeout_s` bounds each request, and once all took as long, ten rounds are enough.
        stopwatch: the judge's.
        alone: locks the device.
        state: clocks and throttling at the moment.
        peak: device-memory bandwidth in GB/s, None where it is not known.
        slowed: names of what slows the device down at the moment, None where that is unknown.
        shared: for using the device beside others.
        gpu: name of the device; "" where it is not known.
    """

    source = "cuda_event"
    most_forwards = 16
    """In a request."""

    def __init__(
        self,
        options: GymOptions,
        stopwatch: Stopwatch,
        alone: Callable[[], AbstractContextManager[Any]],
        state: Callable[[], dict[str, Any]],
        peak: float | None,
        slowed: Callable[[], list[str] | None] = lambda: None,
        shared: Callable[[], AbstractContextManager[Any]] = nullcontext,
        gpu: str = "",
    ) -> None:
        self._options, self._stopwatch, self._alone, self._state, self._peak = options, stopwatch, alone, state, peak
        self._slowed, self._shared, self._gpu = slowed, shared, gpu
        self._compiled: WeakKeyDictionary[Reference, Any] = WeakKeyDictionary()

    def measure(self, session: Session) -> Measurement:
        """Times of both sides, the candidate's cross-checked, and its profile."""
        model = self._timed_model(session)
        with self._alone(), precision(self._options.float32), torch.no_grad():
            sides = Sides(session, model, self._stopwatch, self._options.run_timeout_s)
            (first,) = sides.draw(1)
            floor = self._floor(session, first)
            size, wall_ms = self._warm_up(sides, first)
            before = self._stopwatch.under_load(self._state)
            options, slowed = self._options, self._slowed
            rounds = Rounds(sides, options.timing, session.secret, options.run_timeout_s, size, slowed)
            rounds.run(wall_ms)
            profile = self._profile(session, sides)
            clocks = {"before": before, "after": self._state()}
        facts = {
            "clocks": clocks, "throttled": rounds.throttled, "null_ms": rounds.chosen.null.typical, "floor_ms": floor,
            "timing": options.timing, "forwards": rounds.chosen.count, "settled": rounds.chosen.settled,
        }  # fmt: skip
        return self._verdict(rounds.samples, floor, profile, facts, self._roofline(session))

    def _timed_model(self, session: Session) -> Any:
        """The reference as `reference_mode` wants it, compiled once, while others may use the device."""
        reference = session.reference
        if self._options.reference_mode == "eager":
            return reference.model
        if reference not in self._compiled:
            model: Any = torch.compile(reference.model)
            with self._shared(), precision(self._options.float32), torch.no_grad():
                args, kwargs = session.draw(_COMPILED_TRIAL).inputs.build()
                model(*args, **kwargs)
                self._stopwatch.wait()
            self._compiled[reference] = model
        return self._compiled[reference]

    def _verdict(
        self,
        samples: dict[str, Samples],
        floor: float,
        profile: Profile | None,
        facts: dict[str, Any],
        roofline: float | None,
    ) -> Measurement:
        chosen = samples[self._options.timing]
        refusals = [one.refusal(0.0 if name == "kernelgym" else floor) for name, one in samples.items()]
        found = {name: one.comparison for name, one in samples.items()}
        times = {name: comparison for name, comparison in found.items() if comparison is not None}
        sure = times[self._options.timing].speedup_low if self._options.timing in times else None
        blind = {"profiler_saw_nothing": True} if profile is None else {}
        return Measurement(
            timing(chosen.kernel), timing(chosen.reference), profile, next(filter(None, refusals), None),
            facts={**facts, **blind}, times=times, sure=sure, roofline_ms=roofline,
        )  # fmt: skip

    def _roofline(self, session: Session) -> float | None:
        """None for `kernelgym`, whose inputs may already be in the cache."""
        if session.demand is None or self._options.timing == "kernelgym":
            return None
        tf32 = self._options.float32 == "tf32"
        return measured_roofline_ms(session.demand, self._gpu, self._peak, self._stopwatch.l2_bytes, tf32)

    def _floor(self, session: Session, trial: Trial) -> float:
        args, kwargs = trial.inputs.build()
        used = tensors_in((args, kwargs)) + _parameters(session.reference.model)
        read = bytes_read(lambda: session.reference.model(*args, **kwargs), used)
        written = sum(tensor.numel() * tensor.element_size() for tensor in trial.expected.tensors)
        return floor_ms(read, written, self._peak, self._stopwatch.l2_bytes)

    def _warm_up(self, sides: Sides, first: Trial) -> tuple[RequestSize, float]:
        """The size of requests and the candidate's wall time; programs are quickest when everything has been loaded."""
        ours, theirs = [], []
        for _ in range(_WARM_UPS):
            trials = sides.draw(1)
            ours.append(sides.reference("device", trials).inner)
            theirs.append(sides.candidate("device", trials).wall)
        held = place(first.inputs.tensors)[1] + place(first.expected.tensors)[1]
        return RequestSize(min(ours), held, self.most_forwards), min(theirs)

    def _profile(self, session: Session, sides: Sides) -> Profile | None:
        """The second of two: the first also starts the profiler, which may miss what runs meanwhile."""
        profile = None
        for trial in sides.draw(_PROFILES):
            sides.offer(trial)
            reply = session.ask({"time": {"step": "profile"}}, self._options.run_timeout_s)
            kernels = session.parse(lambda reply=reply: load_kernels(reply["kernels"]))  # type: ignore[misc]
            events = session.parse(lambda reply=reply: load_events(reply["events"]))  # type: ignore[misc]
            profile = profile_kernels(kernels, events, session.source)
        return profile


def _parameters(model: Any) -> list[torch.Tensor]:
    return list(model.state_dict().values()) if isinstance(model, torch.nn.Module) else []


def cuda_clock(device: CudaDevice, options: GymOptions) -> CudaClock:
    """The clock of a GPU: its stopwatch, its lock, and what the driver says of it meanwhile."""
    properties = device.properties
    clock_khz, bits = (int(getattr(properties, key, 0)) for key in ("memory_clock_rate", "memory_bus_width"))
    peak = peak_gbs(properties.name, clock_khz, bits)
    state, slowed = lambda: gpu_state(device.uuid), Throttle(device.uuid).reasons
    shared, name = device.shared, str(properties.name)
    return CudaClock(options, device.stopwatch, device.sharing.alone, state, peak, slowed, shared, name)
