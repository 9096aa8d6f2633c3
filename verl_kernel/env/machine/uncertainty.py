# SPDX-License-Identifier: Apache-2.0
"""How far predicted times may be from a GPU's: intervals that hold nine of ten, by what bounds each step.

Each program of KernelBench's level 1 counts to the class in which most of its time passes. A class' half-width is a
quantile of its programs' |ln(published / predicted)|: of n the ceil(0.9 (n + 1))-th smallest, which a further program
of the class exceeds with a probability of 0.1 at most (split conformal prediction, Vovk et al. 2005); in a class with
fewer than nine programs the quantile of all programs or its largest, whichever is more. Programs that torch.compile
compiles have half-widths of their own, from its published times of the same level. `benchmarks/bench_clock.py` computes
them again and says how many programs of each level lie within. Launches of Triton kernels have half-widths from 66
published times of Triton kernels on an H100 and an H200 (docs/notes/clock.md).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, hypot, log

from verl_kernel.env.machine.machine import MachineModel
from verl_kernel.env.machine.price import fitting, priced_steps, step_ms, turns
from verl_kernel.env.trace import Step, TraceEvent

COVERED = 0.9
"""Share of times that intervals hold."""
_LAUNCH = "launch: "
"""How the classes of launches of Triton kernels begin, which have half-widths of their own."""
_LAUNCHES = {
    "memory": 0.29,
    "mixed memory": 0.38,
    "products": 0.38,
    "convolutions": 0.38,
    "instructions": 0.38,
    "latency": 0.49,
}
"""Half-widths of launches; 0.38 is the quantile of all of them, where fewer than nine times are of a class."""
HALF_WIDTHS = {
    "memory": 0.09,
    "mixed memory": 0.27,
    "products": 0.20,
    "convolutions": 0.40,
    "instructions": 0.32,
    "latency": 0.19,
    **{f"{_LAUNCH}{name}": half for name, half in _LAUNCHES.items()},
}
"""By class, half the width of the interval of a time's logarithm."""
_COMPILED = {
    "memory": 0.35,
    "mixed memory": 0.36,
    "products": 0.19,
    "convolutions": 1.14,
    "instructions": 1.41,
    "latency": 0.36,
}
COMPILED_HALF_WIDTHS = {**_COMPILED, **{f"{_LAUNCH}{name}": half for name, half in _COMPILED.items()}}
"""The same for what torch.compile makes of a program."""
_CONVOLUTIONS = ("convolution", "direct", "transposed")

Interval = tuple[float, float]


def bound(step: Step, machine: MachineModel, blocks_per_sm: int | None = None) -> str:
    """Return the class of a step, a key of `HALF_WIDTHS`: what it spends its time on.

    `latency` where neither transfers nor arithmetic explain half of its time.
    """
    products = step.flops / machine.flop_rate(step.unit, step.intensity)
    instructions = step.instructions / machine.gpu.lane_rate
    moved = step.bytes / machine.bandwidth(step.access)
    if max(products + instructions, moved) < 0.5e-3 * step_ms(step, machine, blocks_per_sm):
        return "latency"
    if products + instructions <= moved:
        return "mixed memory" if step.access == "mixed" else "memory"
    if products < instructions:
        return "instructions"
    return "convolutions" if step.unit in _CONVOLUTIONS else "products"


def time_by_class(
    events: Iterable[TraceEvent], machine: MachineModel, blocks_per_sm: Mapping[str, int] | None = None
) -> dict[str, float]:
    """Return for how many milliseconds each class keeps the device busy."""
    times: defaultdict[str, float] = defaultdict(float)
    for event in events:
        fitting_blocks = fitting(event, blocks_per_sm or {})
        for step in priced_steps(event, machine):
            times[bound(step, machine, fitting_blocks)] += step_ms(step, machine, fitting_blocks)
    return dict(times)


def interval_ms(
    events: Sequence[TraceEvent],
    machine: MachineModel,
    blocks_per_sm: Mapping[str, int] | None = None,
    widths: Mapping[str, float] = HALF_WIDTHS,
) -> Interval:
    """Return the interval of a forward's time in milliseconds: all its steps are too short, or too long, at once.

    Args:
        events: events of one forward, in order.
        machine: machine that runs it.
        blocks_per_sm: blocks that fit into an SM, by kernel; unknown for kernels that are missing.
        widths: half-widths by class.
    """
    return ForwardShares.of(events, machine, blocks_per_sm).interval_ms(widths)


def speedup_interval(
    theirs: ForwardShares, ours: ForwardShares, widths: Mapping[str, float] = HALF_WIDTHS
) -> Interval | None:
    """Return the interval of a predicted speedup; None where a program takes no time.

    Events that both programs share have the same relative error in both. The remaining events of each program have
    independent errors. So the three variances of the logarithm add.

    Args:
        theirs: a forward of the reference.
        ours: one of the candidate.
        widths: half-widths of the reference by class, and of what both run.
    """
    both = Counter(theirs.events) & Counter(ours.events)
    (shared, own), (also, new) = (_apart(forward.events, both) for forward in (theirs, ours))
    nowhere = [False] * len(theirs.events), [False] * len(ours.events)
    middle = _speedup(theirs, ours, nowhere, 0, widths)
    if not middle:
        return None
    wrong = ((shared, also), widths), ((own, nowhere[1]), widths), ((nowhere[0], new), HALF_WIDTHS)
    half = hypot(
        *(max(abs(log(_speedup(theirs, ours, part, way, of) / middle)) for way in (-1, 1)) for part, of in wrong)
    )
    return middle * exp(-half), middle * exp(half)


@dataclass(frozen=True)
class ForwardShares:
    """A forward's events, each with its milliseconds by class."""

    events: Sequence[TraceEvent]
    shares: Sequence[Mapping[str, float]]

    @classmethod
    def of(
        cls, events: Sequence[TraceEvent], machine: MachineModel, blocks_per_sm: Mapping[str, int] | None = None
    ) -> ForwardShares:
        """Price a forward (arguments as of `interval_ms`)."""
        alike = [replace(event, touched=()) for event in events]  # tensors have other numbers in another forward
        return cls(alike, [_shares(event, machine, blocks_per_sm) for event in alike])

    def interval_ms(self, widths: Mapping[str, float]) -> Interval:
        """Return the interval of its time."""
        everywhere = [True] * len(self.events)
        return self.ms(everywhere, -1, widths), self.ms(everywhere, 1, widths)

    def ms(self, wrong: Sequence[bool], way: int, widths: Mapping[str, float]) -> float:
        """Return its time if the wrong events are at the lower (`way` -1) or the upper end (1) of their intervals."""
        times = [
            sum(ms * exp(way * is_wrong * widths[name]) for name, ms in parts.items())
            for parts, is_wrong in zip(self.shares, wrong, strict=True)
        ]
        schedule = turns(zip(self.events, times, strict=True))
        return schedule[-1].end if schedule else 0.0


def _shares(event: TraceEvent, machine: MachineModel, blocks_per_sm: Mapping[str, int] | None) -> dict[str, float]:
    """Return an event's milliseconds by the class whose half-width they have."""
    prefix = _LAUNCH if event.kind == "launch" else ""
    return {f"{prefix}{name}": ms for name, ms in time_by_class([event], machine, blocks_per_sm).items()}


def _speedup(
    theirs: ForwardShares,
    ours: ForwardShares,
    wrong: tuple[Sequence[bool], Sequence[bool]],
    way: int,
    widths: Mapping[str, float],
) -> float:
    before, after = theirs.ms(wrong[0], way, widths), ours.ms(wrong[1], way, widths)
    return before / after if min(before, after) > 0 else 0.0


def _apart(events: Sequence[TraceEvent], both: Counter[TraceEvent]) -> tuple[list[bool], list[bool]]:
    """Return which events another forward has too, each as often as there, and which it has not."""
    unmatched, shared = Counter(both), []
    for event in events:
        shared.append(unmatched[event] > 0)
        unmatched[event] -= 1
    return shared, [not is_shared for is_shared in shared]
