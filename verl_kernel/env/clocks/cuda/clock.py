# SPDX-License-Identifier: Apache-2.0
"""The clock of a GPU: candidate and reference in turns on the same device, until the medians are known to 1 %.

Each round draws fresh inputs and times both sides on them by every protocol asked for (`rounds`, `stopwatch`). The
candidate's time is the runner's claim as far as the judge's own clock bears it out (`rounds`), its outputs are
compared as in the correctness trials, and no cold median may lie under the roofline. The device is locked from the
first warm-up to the last profile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import isfinite
from typing import Any
from weakref import WeakKeyDictionary

import torch

from verl_kernel.env.clocks.base import Measurement, Session
from verl_kernel.env.clocks.cuda.rounds import RequestSize, Rounds, Samples, Sides
from verl_kernel.env.clocks.profile import Profile
from verl_kernel.env.clocks.statistics import timing
from verl_kernel.env.comparison.tf32 import precision
from verl_kernel.env.devices.cuda.device import CudaDevice
from verl_kernel.env.devices.cuda.driver import Throttle, gpu_state
from verl_kernel.env.devices.cuda.stopwatch import Stopwatch
from verl_kernel.env.ipc.shared_memory import place
from verl_kernel.env.machine.machine import GPUS
from verl_kernel.env.machine.roofline import Demand, flop_rates
from verl_kernel.env.ops.call import tensors_in
from verl_kernel.env.ops.reads import bytes_read
from verl_kernel.env.options import GymOptions
from verl_kernel.env.reference.reference import Reference
from verl_kernel.env.reference.trial import Trial
from verl_kernel.env.result import Launch
from verl_kernel.env.trace import TraceEvent, load_events

# The shortest time a forward can take on a GPU: what it must move through device memory, at peak bandwidth.
#
# A bound that is too high would accuse honest programs, so everything is rounded down. Of each input or weight a
# quarter of the largest part counts that a single op of the reference reads (triangles and strides may be skipped);
# gathered tensors do not count at all. Of the outputs that part counts which does not fit into the L2 cache. The
# roofline that scores use accuses nobody: it counts all of that part, and the products where the GPU's peak is known.


_READ_SHARE = 0.25
# Data sheets, GB/s of device memory; the longest name found in the device's name wins.
PEAK_GBS = {
    "H200": 4800.0,
    "H100": 3350.0,
    "H100 PCIe": 2039.0,  # the data sheet of the 80 GB card says 2 TB/s
    "H100 NVL": 3938.0,
    "GH200": 4900.0,
    "H800": 3350.0,
    "H20": 4000.0,
    "A100": 2039.0,
    "A100-SXM4-40GB": 1555.0,
    "A100-PCIE-40GB": 1555.0,
    "A100 80GB PCIe": 1935.0,
    "A800": 2039.0,
    "A10": 600.0,
    "A30": 933.0,
    "A40": 696.0,
    "A6000": 768.0,
    "B200": 8000.0,
    "B300": 8000.0,
    "GB200": 8000.0,
    "L4": 300.0,
    "L40": 864.0,
    "L40S": 864.0,
    "RTX 3090": 936.2,
    "RTX 4090": 1008.0,
    "RTX 5090": 1792.0,
    "T4": 320.0,
    "V100": 900.0,
}


def peak_gbs(name: str, memory_clock_khz: int = 0, bus_bits: int = 0) -> float | None:
    """Peak device-memory bandwidth in GB/s: the larger of the data sheet's and the one the driver's clock gives.

    None where neither is known.
    """
    words = f" {name} "
    known = [key for key in PEAK_GBS if any(f" {key}{end}" in words for end in (" ", "-"))]
    sheet = PEAK_GBS[max(known, key=len)] if known else 0.0
    return max(sheet, 2 * memory_clock_khz * bus_bits / 8e6) or None


def floor_ms(read: int, written: int, peak: float | None, l2_bytes: int = 0) -> float:
    """Milliseconds below which nobody can have done the work; 0 where the peak is unknown."""
    return (_READ_SHARE * read + max(0, written - l2_bytes)) / (peak * 1e6) if peak else 0.0


_COMPUTE = {"H100": "h100", "H200": "h100", "GH200": "h100", "H800": "h100", "A100": "a100", "A800": "a100"}
"""GPUs by words of their names; slower variants have the peaks of the fastest."""


def measured_roofline_ms(demand: Demand, name: str, peak: float | None, l2_bytes: int, tf32: bool) -> float | None:
    """Milliseconds that a forward with cold inputs takes at the peaks of a GPU; None where its bandwidth is unknown.

    Args:
        demand: what the reference reads, writes and multiplies.
        name: of the GPU, as the driver says it.
        peak: device-memory bandwidth in GB/s.
        l2_bytes: of results, what may stay in the cache.
        tf32: whether products of float32 may round their operands.
    """
    if not peak:
        return None
    moved_s = (demand.read + max(0, demand.written - l2_bytes)) / (peak * 1e9)
    words = name.replace("-", " ").split()
    known = next((GPUS[gpu] for word, gpu in _COMPUTE.items() if word in words), None)
    single, half = (0.0, 0.0) if known is None else flop_rates(known, tf32)
    product_s = demand.flops / single + demand.half_flops / half if known else 0.0
    return 1e3 * max(moved_s, product_s) or None


# How much of a forward's device time is the candidate's own, from one profiled forward on a GPU.
#
# Numerator and denominator come from the same list of device kernels. A kernel is the candidate's own if Triton's
# launch hook saw its exact name launched by the candidate's file, and the profiler saw that name no more often than
# the hook: otherwise some library kernel bears the same name, and neither counts. Copies and fills of memory are
# torch's.


DeviceKernels = Mapping[str, tuple[int, float]]
"""Count and total milliseconds per kernel name."""


def load_kernels(value: object) -> dict[str, tuple[int, float]]:
    """Read a runner's list of device kernels.

    Raises:
        ValueError: it is not one.
    """
    if not isinstance(value, dict):
        raise ValueError("device kernels must be an object of names")
    kernels = {}
    for name, item in value.items():
        count, total_ms = item
        if type(count) is not int or count < 1 or type(total_ms) not in (int, float):
            raise ValueError("a device kernel needs a count and milliseconds")
        if not isfinite(total_ms) or total_ms < 0:
            raise ValueError("a device kernel takes a finite time of at least 0")
        kernels[name] = (count, float(total_ms))
    return kernels


def profile_kernels(kernels: DeviceKernels, events: Sequence[TraceEvent], source: str, top: int = 5) -> Profile | None:
    """Summarise one profiled forward.

    Args:
        kernels: what the profiler saw on the device.
        events: launches and torch ops of the same forward.
        source: the candidate's file.
        top: how many names `top_kernels` holds.

    Returns:
        The profile, None where the profiler saw nothing although the forward launched something.
    """
    if not kernels and events:
        return None
    mine = Counter(e.name for e in events if e.kind == "launch" and e.source == source and not e.failed)
    own = {name: seen for name, seen in kernels.items() if seen[0] <= mine[name]}
    total = sum(count for count, _ in kernels.values())
    total_ms = sum(ms for _, ms in kernels.values())
    launches = Counter((event.name, event.grid) for event in events if event.kind == "launch")
    return Profile(
        time_coverage=min(1.0, sum(ms for _, ms in own.values()) / total_ms) if total_ms else 0.0,
        number_coverage=sum(count for count, _ in own.values()) / total if total else 0.0,
        num_custom_kernels=sum(count for count, _ in own.values()),
        num_total_kernels=total,
        launches=tuple(Launch(name=name, grid=grid, count=count) for (name, grid), count in launches.items()),
        fallback_ops=dict(Counter(event.name for event in events if event.kind == "op")),
        top_kernels=tuple(
            (name, ms) for name, (_, ms) in sorted(kernels.items(), key=lambda item: (-item[1][1], item[0]))[:top]
        ),
    )


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
