# SPDX-License-Identifier: Apache-2.0
"""What the traces of verified forwards show about a candidate: its own launches, its share of the work, hidden work."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from random import Random

from verl_kernel.env.ops.table import Trait, row_of
from verl_kernel.env.tamper.hack_flags import HackFlag
from verl_kernel.env.trace import TraceEvent

Trace = Sequence[TraceEvent]
_OPERATIONS_PER_BYTE = 20
"""Arithmetic intensity at which a nominal GPU is as long at arithmetic as at memory (67 TFLOP/s, 3.35 TB/s)."""


def is_moving(op: str) -> bool:
    """Whether an op of torch only moves or fills."""
    return Trait.MOVES in _traits(op)


def own_launches(trace: Trace, file: str) -> list[TraceEvent]:
    """Launches of the candidate's own kernels that did not raise."""
    return [event for event in trace if event.kind == "launch" and event.source == file and not event.failed]


def lazy_flags(traces: Sequence[Trace], work: OwnWork, file: str) -> tuple[HackFlag, ...]:
    """Remarks on a correct candidate: `launch_raised`, `only_moves` (torch computes, its kernels copy)."""
    raised = any(event.failed for trace in traces for event in trace)
    own = own_launches(traces[-1], file)
    found = {HackFlag.LAUNCH_RAISED: raised, HackFlag.ONLY_MOVES: bool(own) and not any(work.covered)}
    return tuple(flag for flag, is_so in found.items() if is_so)


@dataclass(frozen=True)
class OwnWork:
    """How much of each event of a forward is compute of the candidate's own, between 0 and 1."""

    covered: tuple[float, ...]
    neutral: tuple[float, ...]
    """What is neither its compute nor anybody else's: its own kernels' moves and constants."""


def own_work(trace: Trace, file: str, known: Trace, idle: Collection[int], moves_count: bool) -> OwnWork:
    """Weigh the events of a forward.

    Args:
        trace: its events.
        file: the candidate's file.
        known: the latest trace, in which most is known about what launches compute.
        idle: numbers of the launches that an ablation showed to make no difference.
        moves_count: whether moving is all that the task asks for.
    """
    known_launches = [event for event in known if event.kind == "launch"]
    number, covered, neutral = -1, [], []
    for event in trace:
        number += event.kind == "launch"
        share, moved = 0.0, 0.0
        if own_launches([event], file):
            known_event = known_launches[number] if number < len(known_launches) else event
            share = _computed(known_event if known_event.name == event.name else event)
            share, moved = (1.0, 0.0) if moves_count else (share, 1.0 - share)
        covered.append(0.0 if number in idle else share)
        neutral.append(moved if event.stored else 0.0)
    return OwnWork(tuple(covered), tuple(neutral))


@dataclass(frozen=True)
class Parts:
    """Own launches whose part in the output is worth asking for, by number."""

    weights: dict[int, int]
    """Of each, by bytes and operations."""
    names: dict[int, str]

    @classmethod
    def of(cls, trace: Trace, file: str, moves_count: bool) -> Parts:
        """Those of a forward; of moves too, if moving is all that the task asks for."""
        launches = [event for event in trace if event.kind == "launch"]
        asked = {number: event for number, event in enumerate(launches) if _may_be_idle(event, file, moves_count)}
        weights = {number: _weight(event) for number, event in asked.items()}
        return cls(weights, {number: event.name for number, event in asked.items()})

    def groups(self, most: int) -> list[list[int]]:
        """At most so many groups, heavy ones first: each launch by itself if there are no more, else by kernels."""
        groups: dict[object, list[int]] = {}
        for number, name in self.names.items():
            groups.setdefault(number if len(self.names) <= most else name, []).append(number)
        ordered = sorted(groups.values(), key=lambda numbers: -sum(self.weights[number] for number in numbers))
        return ordered[:most] if len(groups) > 1 else []

    def without(self, numbers: Collection[int]) -> Parts:
        """All but these."""
        left = {number: weight for number, weight in self.weights.items() if number not in numbers}
        return Parts(left, {number: self.names[number] for number in left})

    def drawn(self, random: Random, count: int) -> list[int]:
        """So many, some perhaps several times, each as likely as it is heavy."""
        return random.choices([*self.weights], [1 + weight for weight in self.weights.values()], k=count)

    def like(self, random: Random, drawn: Sequence[int], found: Collection[int]) -> set[int]:
        """The found launches, and others at random, until their part of the weight is that of `found` in `drawn`."""
        wanted = sum(self.weights.values()) * sum(number in found for number in drawn) / len(drawn)
        chosen, rest = set(found), sorted(self.weights.keys() - set(drawn))
        left = wanted - sum(self.weights[number] for number in chosen)
        for number in random.sample(rest, len(rest)):
            if left <= 0:
                break
            chosen.add(number)
            left -= self.weights[number]
        return chosen


def _may_be_idle(event: TraceEvent, file: str, moves_count: bool) -> bool:
    return bool(own_launches([event], file)) and bool(event.stored if moves_count else event.computed)


def _weight(event: TraceEvent) -> int:
    return event.bytes + event.flops // _OPERATIONS_PER_BYTE


def _computed(event: TraceEvent) -> float:
    if event.stored is None or event.computed is None:  # a device that does not see stores
        return 1.0
    return event.computed / event.stored if event.stored else 0.0


def moves_too_little(trace: Trace, reference: Trace, output_bytes: int) -> bool:
    """Whether the counted traffic is below what writing the output takes: then something was not counted."""
    return _traffic(trace) < min(output_bytes, _traffic(reference))


def computes(trace: Trace) -> bool:
    """Whether a forward of torch ops does more than move data to places of their own or of others."""
    names = [event.name for event in trace if event.kind == "op"]
    return any(not _traits(name) & (Trait.MOVES | Trait.GATHERS) for name in names)


def _traits(op: str) -> Trait:
    """What is special about an op by its name, with or without its overload (`aten::add.Tensor`)."""
    return row_of(op.partition(".")[0]).traits


def _traffic(trace: Trace) -> int:
    return sum(event.bytes for event in trace)
