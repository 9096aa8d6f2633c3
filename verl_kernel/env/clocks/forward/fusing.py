# SPDX-License-Identifier: Apache-2.0
"""Forwards in which one launch does the work of two events, so that what one hands to the other stays on the chip."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from verl_kernel.env.clocks.forward.launches import Flow, OwnLaunch
from verl_kernel.env.trace import Step, TraceEvent

_MOST = 64
"""Most pairs of events that are tried."""
_SHARED = 1.5
"""Reads of each byte, in the mean, above which blocks of a launch share a tensor: each of them would need all of it."""


@dataclass(frozen=True)
class Fused:
    """A forward with one launch in place of two events."""

    launch: OwnLaunch
    """The launch that does the work of both."""
    other: str
    """Name of the other event."""
    events: list[TraceEvent]


def fusions(events: Sequence[TraceEvent], launches: Sequence[OwnLaunch], flow: Flow) -> Iterator[Fused]:
    """Yield the forwards with two events fused, of which at least one is a launch of the candidate."""
    own = {launch.index: launch for launch in launches}
    pairs = [
        (writers[-1], reader, number)
        for number, writers in flow.writers.items()
        for reader in flow.readers.get(number, ())
        if reader > writers[-1] and (reader in own or writers[-1] in own)
    ]
    for first, second, number in pairs[:_MOST]:
        if _can_be_fused(events, own, first, second, number):
            is_last = all(reader <= second for reader in flow.readers[number])
            fused = _fused(events[first], events[second], number if is_last else None)
            remaining = [*events[:first], *events[first + 1 : second], fused, *events[second + 1 :]]
            launch, other = (own[first], second) if first in own else (own[second], first)
            yield Fused(launch, events[other].name, remaining)


def _can_be_fused(
    events: Sequence[TraceEvent], own: dict[int, OwnLaunch], first: int, second: int, number: int
) -> bool:
    """Whether a program could do the second event's work as soon as it has done its part of the first one's."""
    pair = (events[first], events[second])
    if all(any(step.flops for step in event.steps) for event in pair):
        return False
    return all(
        _is_private(own[index], number) if index in own else _is_elementwise(events[index]) for index in (first, second)
    )


def _is_private(launch: OwnLaunch, number: int) -> bool:
    """Whether no two blocks of a launch use the same part of a tensor."""
    areas = [area for area, tensor in launch.numbers.items() if tensor == number]
    names = [name for name, area in launch.explained["names"].items() if area in areas]
    if not names:
        return False
    _, once_read, read, once_written, written = launch.tally["areas"][names[0]]
    return read <= _SHARED * once_read and written <= _SHARED * once_written


def _is_elementwise(event: TraceEvent) -> bool:
    return len(event.steps) == 1 and not event.steps[0].flops and event.steps[0].access in ("contiguous", "mixed")


def _fused(first: TraceEvent, second: TraceEvent, output_area: int | None) -> TraceEvent:
    """Return an event that does the work of both, and reads again nothing that the first event has touched.

    Args:
        first: the first event.
        second: the second one.
        output_area: number of the tensor that is not written, as nothing else reads it.
    """
    there = {number: written for number, _, written in first.touched}
    again = sum(read for number, read, _ in second.touched if number in there)
    steps = _less(first.steps, 0 if output_area is None else there[output_area], is_from_end=True)
    used = _less(second.steps, again, is_from_end=False)
    launch = first if first.kind == "launch" else second
    return replace(
        launch,
        steps=_joined(steps, used),
        host_us=max(first.host_us, second.host_us),
        recent=(*first.recent, *_less_recent(second.recent, again)),
    )


def _less(steps: Sequence[Step], size: int, is_from_end: bool) -> list[Step]:
    """Return steps that move fewer bytes, beginning with the last, or the first, of them."""
    steps_left, to_remove = list(steps), size
    indices = range(len(steps_left))
    for index in reversed(indices) if is_from_end else indices:
        step = steps_left[index]
        gone = min(to_remove, step.bytes)
        steps_left[index] = replace(step, bytes=step.bytes - gone, l2_bytes=max(0, step.l2_bytes - gone))
        to_remove -= gone
    return steps_left


def _less_recent(recent: Sequence[tuple[int, int]], size: int) -> list[tuple[int, int]]:
    """Return recent reads without those of a tensor that is no longer read, which were the latest."""
    pieces, to_remove = [], size
    for piece, since in sorted(recent, key=lambda pair: pair[1]):
        gone = min(to_remove, piece)
        to_remove -= gone
        if piece > gone:
            pieces.append((piece - gone, since))
    return pieces


def _joined(first: Sequence[Step], second: Sequence[Step]) -> tuple[Step, ...]:
    """Return the steps of one kernel; memory and arithmetic of two simple ones overlap."""
    if len(first) == len(second) == 1 and not first[0].flops and not second[0].flops:
        return (_together(first[0], second[0]),)
    return (*first, *(replace(step, kernels=0) for step in second))


def _together(first: Step, second: Step) -> Step:
    larger = first if first.blocks >= second.blocks else second
    return replace(
        larger,
        bytes=first.bytes + second.bytes,
        instructions=first.instructions + second.instructions,
        l2_bytes=first.l2_bytes + second.l2_bytes,
        in_flight=max(first.in_flight, second.in_flight),
        block_ns=max(first.block_ns, second.block_ns),
        repeated_bytes=first.repeated_bytes + second.repeated_bytes,
        private_bytes=first.private_bytes + second.private_bytes,
        shared_bytes=first.shared_bytes + second.shared_bytes,
        rereads=(*first.rereads, *second.rereads),
        returns=(*first.returns, *second.returns),
        serial=max(first.serial, second.serial),
        kernels=1,
    )
