# SPDX-License-Identifier: Apache-2.0
"""Prices a forward again with single changes: of the accesses, the units, the grid or the number of launches.

Every change is a change of counts, and the clock that timed the forward prices it. What a change would need of the
program (registers, shared memory, another order of work) is not priced, so a saving is what the change could bring at
most.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, sqrt
from typing import Any

from verl_kernel.env.clocks.forward.figures import (
    Setting,
    factor_types,
    has_dot,
    no_tensor_cores,
    tensor_traffic,
    wasted_sectors,
)
from verl_kernel.env.clocks.forward.fusing import fusions
from verl_kernel.env.clocks.forward.launches import Flow, OwnLaunch
from verl_kernel.env.machine.constants import constant
from verl_kernel.env.machine.price import event_ms, fitting, known_ms, slots, turns
from verl_kernel.env.result import LONGEST_NAME, Change, ChangeKind
from verl_kernel.env.trace import Step, TraceEvent

_SAVING = 0.01
"""Share of a forward's time below which a saving is not listed."""
_MOST = 5
"""Most changes that are listed."""
_LEAST_BYTES = 1024
"""Least bytes of a block when a launch's work is divided among more blocks."""
_SPLITS = 3
"""Products of TF32 parts in place of one product of float32 (`tf32x3`)."""
_LEAST_DEPTH = 16
"""Columns of its first factor that `tl.dot` takes at least: a program that multiplied one by one loads that many."""


@dataclass(frozen=True)
class Steps:
    """The steps that a launch would have with a change."""

    kind: ChangeKind
    steps: tuple[Step, ...]
    subject: str = ""
    line: int | None = None


class PricedForward:
    """A forward whose events are priced once, so that a change prices only what it changes."""

    def __init__(self, events: Sequence[TraceEvent], setting: Setting) -> None:
        self._events, self._setting = events, setting
        self._times = {id(event): self._price(event) for event in events}
        self.ms = self.ms_of(events)

    def ms_of(self, events: Iterable[TraceEvent]) -> float:
        """Return the milliseconds of a forward of mostly the same events."""
        spans = ((event, self._times.get(id(event)) or self._price(event)) for event in events)
        return turns(spans)[-1].end

    def ms_with(self, indices: Collection[int], steps: tuple[Step, ...]) -> float:
        """Return the milliseconds if the events at some places had these steps."""
        events = enumerate(self._events)
        return self.ms_of([replace(event, steps=steps) if index in indices else event for index, event in events])

    def freed_ms(self, name: str) -> float:
        """Return the milliseconds if only places for warps and blocks limited a kernel's blocks on an SM."""
        machine = self._setting.machine
        spans = (
            (event, event_ms(event, machine) if event.name == name else self._times[id(event)])
            for event in self._events
        )
        return turns(spans)[-1].end

    def _price(self, event: TraceEvent) -> float:
        return known_ms(event, self._setting.machine, self._setting.blocks_per_sm)


def priced_changes(
    events: Sequence[TraceEvent],
    launches: Sequence[OwnLaunch],
    kinds: Sequence[OwnLaunch],
    flow: Flow,
    setting: Setting,
) -> tuple[Change, ...]:
    """Return the single changes that save time, the one that saves most first.

    Args:
        events: events of a forward.
        launches: the candidate's launches among them.
        kinds: one launch of each kind that may be changed.
        flow: which events use each tensor.
        setting: what else is known.
    """
    forward, changes = PricedForward(events, setting), list[Change]()
    for launch in kinds:
        alike = {one.index for one in launches if one.key == launch.key}
        for change in _changes(launch, flow, setting):
            changes.append(_change(change, launch, forward.ms_with(alike, change.steps)))
        if launch.event.name in setting.blocks_per_sm:
            changes.append(_change(Steps("occupancy", ()), launch, forward.freed_ms(launch.event.name)))
    for fused in fusions(events, launches, flow):
        changes.append(_change(Steps("fuse", (), fused.other), fused.launch, forward.ms_of(fused.events)))
    useful = sorted((one for one in changes if one.ms < (1.0 - _SAVING) * forward.ms), key=lambda one: one.ms)
    best = {(one.kind, one.kernel, one.subject): one for one in reversed(useful)}
    return tuple(one for one in useful if best[one.kind, one.kernel, one.subject] is one)[:_MOST]


def _change(change: Steps, launch: OwnLaunch, ms: float) -> Change:
    name, subject = (text[:LONGEST_NAME] for text in (launch.event.name, change.subject))
    return Change(kind=change.kind, kernel=name, subject=subject, line=change.line, ms=ms)


def _changes(launch: OwnLaunch, flow: Flow, setting: Setting) -> Iterator[Steps]:
    explained, steps = launch.explained, launch.event.steps
    if explained["coalesced"] and (wasted := wasted_sectors(launch)):
        yield Steps("coalesce", _read(explained["coalesced"]), wasted[0].tensor, wasted[0].line)
    for name, changed in explained["once"].items():
        yield Steps("once", _read(changed), launch.tensor(name), _line_of(launch, explained["names"][name]))
    if explained["unspilled"]:
        yield Steps("spills", _read(explained["unspilled"]))
    if no_tensor_cores(launch, setting) is not None:
        yield Steps("tensor_cores", _on_tensor_cores(launch, flow, setting))
    if any(step.flops and step.intensity for step in steps):
        yield Steps("tiles", tuple(map(_in_larger_tiles, steps)))
    resident = slots(steps[0].warps, setting.machine, fitting(launch.event, setting.blocks_per_sm))
    for blocks in (setting.machine.gpu.sms, resident, ceil(steps[0].blocks / resident) * resident):
        if (filled := _divided(steps, blocks)) is not None:
            yield Steps("fill", filled)
    if any(step.in_flight for step in steps):
        yield Steps("in_flight", tuple(replace(step, in_flight=2 * step.in_flight) for step in steps))
    if (lighter := _without_integers(launch)) is not None:
        yield Steps("integers", lighter)


def _read(steps: Sequence[Mapping[str, Any]]) -> tuple[Step, ...]:
    return tuple(map(Step.from_json, steps))


def _line_of(launch: OwnLaunch, area: int) -> int | None:
    """Return the line that moves most of a tensor."""
    lines = [line for line in launch.explained["lines"] if line["area"] == area]
    return max(lines, key=lambda line: line["sectors"])["line"] if lines else None


def _on_tensor_cores(launch: OwnLaunch, flow: Flow, setting: Setting) -> tuple[Step, ...]:
    """Return the steps of a launch whose products run on tensor cores: loads and products, then stores."""
    plain, remaining_slots = launch.explained["multiplied"]
    together = 1 if has_dot(setting.text, launch.event.name) else _LEAST_DEPTH
    is_half = "*fp32" not in factor_types(launch)
    passes = 1 if is_half or setting.machine.matmul_tf32 else _SPLITS
    (main, *_), written = launch.event.steps, sum(one.written for one in tensor_traffic(launch, flow))
    stored = min(main.bytes, written)
    return (
        replace(
            main,
            bytes=main.bytes - stored,
            l2_bytes=max(0, main.l2_bytes - written),
            instructions=remaining_slots,
            flops=passes * plain,
            unit="half" if is_half else "tf32",
            in_flight=together * main.in_flight,
            block_ns=int(constant("program_ns")),
        ),
        Step(bytes=stored, l2_bytes=written, blocks=main.blocks, warps=main.warps, kernels=0),
    )


def _in_larger_tiles(step: Step) -> Step:
    """Return a step of products in tiles of twice as many rows and columns."""
    again = max(0, step.l2_bytes - step.bytes) if step.flops else 0
    return replace(
        step,
        blocks=max(1, step.blocks // 4),
        intensity=2 * step.intensity,
        l2_bytes=step.l2_bytes - again // 2,
        in_flight=2 * step.in_flight,
        rereads=tuple((far, size // 2) for far, size in step.rereads),
        returns=tuple((far, size // 2) for far, size in step.returns),
    )


def _divided(steps: Sequence[Step], blocks: int) -> tuple[Step, ...] | None:
    """Return the steps with their work divided among more blocks; None if there is too little of it."""
    moved = max(max(step.bytes, step.l2_bytes) for step in steps)
    if blocks <= steps[0].blocks or moved < blocks * _LEAST_BYTES:
        return None
    return tuple(_of_blocks(step, blocks) for step in steps)


def _of_blocks(step: Step, blocks: int) -> Step:
    """Return a step of more blocks; what they share is read more often, as the edges of their tiles are longer."""
    again = max(0, step.l2_bytes - step.bytes) * (sqrt(blocks / max(1, step.blocks)) - 1.0)
    l2_bytes = step.l2_bytes + round(again)
    each, least_ns = max(step.bytes, l2_bytes) // blocks, int(constant("program_ns"))
    return replace(
        step,
        blocks=blocks,
        l2_bytes=l2_bytes,
        in_flight=min(step.in_flight, max(1, each)),
        block_ns=min(step.block_ns, max(least_ns, step.block_ns * step.blocks // blocks)),
        private_bytes=step.private_bytes * step.blocks // blocks,
    )


def _without_integers(launch: OwnLaunch) -> tuple[Step, ...] | None:
    """Return the steps without integer instructions; None if another unit is busier."""
    busy = dict(launch.explained["busy"])
    integer = busy.pop("integer")
    if integer < max(busy.values()):
        return None
    busy["issue"] -= integer // 2  # each takes one place to issue, and a unit of half the rate
    remaining, first = max(busy.values()), launch.event.steps[0]
    return (replace(first, instructions=min(first.instructions, remaining)), *launch.event.steps[1:])
