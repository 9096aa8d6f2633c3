# SPDX-License-Identifier: Apache-2.0
"""The clock of a GPU: times candidate and reference alternately on one device, until both medians are known.

Each round draws fresh inputs and times both sides on them by every requested protocol (`rounds`, `stopwatch`). The
candidate's time is the runner's claim, corrected where the judge's own clock contradicts it (`rounds`). Its outputs are
compared as in the correctness trials, and no cold median may lie below the roofline. The device is locked from the
first warm-up to the last profile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from math import isfinite
from statistics import median
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
from verl_kernel.env.gpus import GPUS
from verl_kernel.env.ipc.shared_memory import place
from verl_kernel.env.machine.roofline import Demand, flop_rates
from verl_kernel.env.ops.call import tensors_in
from verl_kernel.env.ops.reads import bytes_read
from verl_kernel.env.options import GymOptions
from verl_kernel.env.reference.reference import Reference
from verl_kernel.env.reference.trial import Trial
from verl_kernel.env.result import Launch
from verl_kernel.env.task import not_compiled
from verl_kernel.env.trace import TraceEvent, load_events

# The shortest time that a forward can take on a GPU: the bytes it must move through device memory at peak bandwidth.
#
# A bound that is too high would accuse honest programs, so everything is rounded down. For each input or weight it
# counts a quarter of the largest part that a single op of the reference reads (triangles and strides may be skipped);
# gathered tensors do not count. Of the outputs it counts the part that does not fit into the L2 cache. The roofline
# in scores accuses no program: it counts that largest part fully, and the products where the GPU's peak is known.


_READ_SHARE = 0.25
# Bandwidth of device memory in GB/s from data sheets; the longest key found in the device's name is used.
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
    """Return the peak device-memory bandwidth in GB/s: the larger of the data sheet's and the driver's clock's.

    The result is None where neither is known.
    """
    words = f" {name} "
    keys = [key for key in PEAK_GBS if any(f" {key}{end}" in words for end in (" ", "-"))]
    sheet = PEAK_GBS[max(keys, key=len)] if keys else 0.0
    return max(sheet, 2 * memory_clock_khz * bus_bits / 8e6) or None


def floor_ms(read: int, written: int, peak: float | None, l2_bytes: int = 0) -> float:
    """Return the milliseconds below which no program can have done the work; 0 where the peak is unknown."""
    return (_READ_SHARE * read + max(0, written - l2_bytes)) / (peak * 1e6) if peak else 0.0


_COMPUTE = {"H100": "h100", "H200": "h100", "GH200": "h100", "H800": "h100", "A100": "a100", "A800": "a100"}
"""Machine models by words in GPU names; slower variants have the peaks of the fastest."""


def measured_roofline_ms(demand: Demand, name: str, peak: float | None, l2_bytes: int, tf32: bool) -> float | None:
    """Return the milliseconds of a forward with cold inputs at a GPU's peak rates; None if its bandwidth is unknown.

    Args:
        demand: bytes that the reference reads and writes, and its products.
        name: the driver's name of the GPU.
        peak: device-memory bandwidth in GB/s.
        l2_bytes: bytes of results that may stay in the cache.
        tf32: whether float32 products may round their operands.
    """
    if not peak:
        return None
    moved_s = (demand.read + max(0, demand.written - l2_bytes)) / (peak * 1e9)
    words = name.replace("-", " ").split()
    data_sheet = next((GPUS[gpu] for word, gpu in _COMPUTE.items() if word in words), None)
    single, half = (0.0, 0.0) if data_sheet is None else flop_rates(data_sheet, tf32)
    product_s = demand.flops / single + demand.half_flops / half if data_sheet else 0.0
    return 1e3 * max(moved_s, product_s) or None


# The candidate's share of a forward's device time, from one profiled forward on a GPU.
#
# Numerator and denominator come from the same list of device kernels. A kernel is the candidate's own if Triton's
# launch hook saw its exact name launched by the candidate's file, and the profiler saw that name no more often than
# the hook: otherwise a library kernel has the same name, and neither counts. Copies and fills of memory count as
# torch's.


DeviceKernels = Mapping[str, tuple[int, float]]
"""Count and total milliseconds by kernel name."""


def load_kernels(value: object) -> dict[str, tuple[int, float]]:
    """Read a runner's list of device kernels.

    Raises:
        ValueError: the value is not such a list.
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
        kernels: device kernels that the profiler saw.
        events: launches and torch ops of the same forward.
        source: the candidate's file.
        top: number of names in `top_kernels`.

    Returns:
        The profile; None if the profiler saw nothing although the forward launched something.
    """
    if not kernels and events:
        return None
    mine = Counter(e.name for e in events if e.kind == "launch" and e.source == source and not e.failed)
    # a name seen more often than launched is also that of a library kernel: it does not count
    own = {name: entry for name, entry in kernels.items() if entry[0] <= mine[name]}
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
_COMPARED = 9
"""Forwards of each mode of a reference from which `best` chooses."""


@dataclass
class Baseline:
    """A reference in the modes that may be timed; one of them is."""

    models: dict[str, Any]
    """By mode: `eager`, `compile`."""
    remarks: dict[str, str] = field(default_factory=dict)
    """What results say of it."""
    mode: str = ""
    """The mode that is timed; chosen by `faster`."""

    def faster(self, ms: Callable[[Any], float]) -> Any:
        """Return the model that takes less time; the choice is made once.

        Args:
            ms: times a model.
        """
        if not self.mode:
            times = {mode: ms(model) for mode, model in self.models.items()} if len(self.models) > 1 else self.models
            self.mode = min(times, key=times.__getitem__)
        return self.models[self.mode]


class CudaClock:
    """Measures times on the current device.

    Args:
        options: options of the gym; `run_timeout_s` bounds each request, and after this time ten rounds are enough.
        stopwatch: the judge's stopwatch.
        alone: locks the device exclusively.
        state: returns the present clocks and throttling.
        peak: device-memory bandwidth in GB/s, None if unknown.
        slowed: returns the names of what slows the device down at the moment, None if unknown.
        shared: locks the device for use together with other judges.
        gpu: name of the device; "" if unknown.
    """

    source = "cuda_event"
    most_forwards = 16
    """Largest number of forwards in a request."""

    def __init__(
        self,
        options: GymOptions,
        stopwatch: Stopwatch,
        *,
        alone: Callable[[], AbstractContextManager[Any]],
        state: Callable[[], dict[str, Any]],
        peak: float | None,
        slowed: Callable[[], list[str] | None] = lambda: None,
        shared: Callable[[], AbstractContextManager[Any]] = nullcontext,
        gpu: str = "",
    ) -> None:
        self._options, self._stopwatch, self._alone, self._state, self._peak = options, stopwatch, alone, state, peak
        self._slowed, self._shared, self._gpu = slowed, shared, gpu
        self._baselines: WeakKeyDictionary[Reference, Baseline] = WeakKeyDictionary()

    def measure(self, session: Session) -> Measurement:
        """Measure times of both sides, cross-check the candidate's, and profile it."""
        baseline = self._baseline(session)
        with self._alone(), precision(self._options.float32), torch.no_grad():
            sides = self._sides(session, baseline.faster(lambda model: self._typical(session, model)))
            (first,) = sides.draw(1)
            floor = self._floor(session, first)
            size, wall_ms = self._warm_up(sides, first)
            before = self._stopwatch.under_load(self._state)
            options, limit_s = self._options, self._options.run_timeout_s
            rounds = Rounds(
                sides,
                options.timing,
                session.secret,
                budget_s=limit_s,
                size=size,
                width=options.timing_width,
                slowed=self._slowed,
            )
            rounds.run(wall_ms)
            profile = self._profile(session, sides)
            clocks = {"before": before, "after": self._state()}
        facts = {
            "clocks": clocks,
            "throttled": rounds.throttled,
            "null_ms": rounds.chosen.null.typical,
            "floor_ms": floor,
            "timing": options.timing,
            "forwards": rounds.chosen.count,
            "settled": rounds.chosen.settled,
            **baseline.remarks,
        }
        measurement = self._verdict(rounds.samples, floor, profile, facts, self._roofline(session))
        return replace(measurement, reference_mode=baseline.mode)

    def _baseline(self, session: Session) -> Baseline:
        """Return the reference in the modes of `reference_mode` (raises TaskError).

        It is compiled once, while others may use the device.
        """
        reference, mode = session.reference, self._options.reference_mode
        if reference not in self._baselines:
            baseline = Baseline({} if mode == "compile" else {"eager": reference.model})
            if mode != "eager":
                self._compile(session, baseline)
            self._baselines[reference] = baseline
        return self._baselines[reference]

    def _compile(self, session: Session, baseline: Baseline) -> None:
        """Add the compiled reference, or a remark that there is none (raises TaskError if nothing else is left)."""
        model: Any = torch.compile(session.reference.model)
        args, kwargs = session.draw(_COMPILED_TRIAL).inputs.build()
        try:
            with self._shared(), precision(self._options.float32), torch.no_grad():
                model(*args, **kwargs)
                self._stopwatch.wait()
        except torch.OutOfMemoryError:  # the judge's GPU is short of memory: no fault of the task
            raise
        except Exception as exc:
            reason = f"{type(exc).__name__}: {' '.join(str(exc).split())[:200]}"
            if not baseline.models:
                raise not_compiled(session.reference.task, reason) from exc
            baseline.remarks["reference_not_compiled"] = reason
        else:
            baseline.models["compile"] = model

    def _sides(self, session: Session, model: Any) -> Sides:
        return Sides(session, model, self._stopwatch, self._options.run_timeout_s)

    def _typical(self, session: Session, model: Any) -> float:
        """Return the median milliseconds of a few forwards of a model."""
        sides = self._sides(session, model)
        return median(sides.reference("device", sides.draw(1)).inner for _ in range(_COMPARED))

    def _verdict(
        self,
        samples: dict[str, Samples],
        floor: float,
        profile: Profile | None,
        facts: dict[str, Any],
        roofline: float | None,
    ) -> Measurement:
        chosen = samples[self._options.timing]
        # the inputs of `kernelgym` may already be in the cache, so no lower bound holds for it
        refusals = [sample.refusal(0.0 if name == "kernelgym" else floor) for name, sample in samples.items()]
        comparisons = {name: sample.comparison for name, sample in samples.items()}
        times = {name: comparison for name, comparison in comparisons.items() if comparison is not None}
        sure = times[self._options.timing].speedup_low if self._options.timing in times else None
        blind = {"profiler_saw_nothing": True} if profile is None else {}
        return Measurement(
            timing(chosen.kernel),
            timing(chosen.reference),
            profile,
            next(filter(None, refusals), None),
            facts={**facts, **blind},
            times=times,
            sure=sure,
            roofline_ms=roofline,
        )

    def _roofline(self, session: Session) -> float | None:
        """Return the roofline's milliseconds; None for `kernelgym`, whose inputs may already be in the cache."""
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
        """Warm both sides up; return the size of requests and the candidate's least wall time of a forward."""
        ours, theirs = [], []
        for _ in range(_WARM_UPS):
            trials = sides.draw(1)
            ours.append(sides.reference("device", trials).inner)
            theirs.append(sides.candidate("device", trials).wall)
        held_bytes = place(first.inputs.tensors)[1] + place(first.expected.tensors)[1]
        return RequestSize(min(ours), held_bytes, self.most_forwards), min(theirs)

    def _profile(self, session: Session, sides: Sides) -> Profile | None:
        """Return the second of two profiles: the first also starts the profiler, which may miss kernels meanwhile."""
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
    """Build the clock of a GPU from its stopwatch, its lock and the driver's queries."""
    properties = device.properties
    clock_khz, bits = (int(getattr(properties, key, 0)) for key in ("memory_clock_rate", "memory_bus_width"))
    peak = peak_gbs(properties.name, clock_khz, bits)
    return CudaClock(
        options,
        device.stopwatch,
        alone=device.sharing.alone,
        state=lambda: gpu_state(device.uuid),
        peak=peak,
        slowed=Throttle(device.uuid).reasons,
        shared=device.shared,
        gpu=str(properties.name),
    )
