# SPDX-License-Identifier: Apache-2.0
"""Checks of the traces of verified forwards: the candidate's own launches, its share of the work, hidden work."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from random import Random

from verl_kernel.env.ops.table import Trait, row_of
from verl_kernel.env.tamper.hack_flags import HackFlag
from verl_kernel.env.trace import TraceEvent

Trace = Sequence[TraceEvent]
_OPERATIONS_PER_BYTE = 20
"""Operations per byte at which arithmetic and memory traffic take equally long on a GPU of 67 TFLOP/s and 3.35 TB/s."""


def is_moving(op: str) -> bool:
    """Tell whether a torch op only moves data or fills tensors."""
    return Trait.MOVES in _traits(op)


def own_launches(trace: Trace, file: str) -> list[TraceEvent]:
    """Return the successful launches of kernels that the candidate's file defines."""
    return [event for event in trace if event.kind == "launch" and event.source == file and not event.failed]


def lazy_flags(traces: Sequence[Trace], work: OwnWork, file: str) -> tuple[HackFlag, ...]:
    """Return the remarks on a correct candidate: `launch_raised` and `only_moves`."""
    raised = any(event.failed for trace in traces for event in trace)
    own = own_launches(traces[-1], file)
    flags = {HackFlag.LAUNCH_RAISED: raised, HackFlag.ONLY_MOVES: bool(own) and not any(work.covered)}
    return tuple(flag for flag, is_so in flags.items() if is_so)


@dataclass(frozen=True)
class OwnWork:
    """The shares, between 0 and 1, of each event of a forward that count as the candidate's own work."""

    covered: tuple[float, ...]
    """Share of the event that is computation of the candidate's own kernels."""
    neutral: tuple[float, ...]
    """Share that counts neither for nor against the candidate: moves and constants of its own kernels."""


def are_alike(traces: Sequence[Trace], file: str) -> bool:
    """Tell whether all forwards had the same own launches, and the same torch ops that compute, by names."""
    return len({tuple(_computing_names(trace, file)) for trace in traces}) <= 1


def only_kernels_compute(trace: Trace, other: Trace, file: str) -> bool:
    """Tell whether a forward did what another one did, by names, and torch only moved data in it."""
    steps, others = ([(event.kind, event.name, event.failed) for event in events] for events in (trace, other))
    return steps == others and all(is_moving(event.name) or own_launches([event], file) for event in trace)


def _computing_names(trace: Trace, file: str) -> list[str]:
    computed = [event.kind == "op" and not is_moving(event.name) for event in trace]
    pairs = zip(trace, computed, strict=True)
    return [event.name for event, is_computed in pairs if is_computed or own_launches([event], file)]


def latest_known(trace: Trace, latest: Trace, file: str) -> list[TraceEvent]:
    """Return a forward's events with what a later forward, perhaps in another mode, showed of the same launches.

    The later forward must have done the same. A launch is the same if its number in the forward and its code agree:
    another launch of a kernel of that name may do something else.
    """
    if not are_alike([trace, latest], file):
        return [*trace]
    later = iter([event for event in latest if event.kind == "launch"])
    return [_with_stores_of(event, next(later, event)) if event.kind == "launch" else event for event in trace]


def _with_stores_of(event: TraceEvent, latest: TraceEvent) -> TraceEvent:
    # By the digest of the code and the number in the forward: a name alone could be that of another kernel.
    is_same = event.variant == latest.variant and not latest.failed
    return replace(event, stored=latest.stored, computed=latest.computed) if is_same else event


def own_work(trace: Trace, file: str, latest: Trace, ineffective: Collection[int], moves_count: bool) -> OwnWork:
    """Compute the candidate's share of each event of a forward.

    Args:
        trace: the forward's events.
        file: the candidate's file.
        latest: events of the latest forward, which shows most about what launches compute (`latest_known`).
        ineffective: numbers of the launches that made no difference in an ablation.
        moves_count: whether the task only moves data, so that moves count as the candidate's work.
    """
    known_launches = [event for event in latest if event.kind == "launch"]
    number, covered, neutral = -1, [], []
    for event in trace:
        number += event.kind == "launch"
        share, moved = 0.0, 0.0
        if own_launches([event], file):
            known_event = known_launches[number] if number < len(known_launches) else event
            share = _computed(known_event if known_event.name == event.name else event)
            share, moved = (1.0, 0.0) if moves_count else (share, 1.0 - share)
        # A launch without effect covers nothing, but its time counts: filler must not raise the coverage.
        covered.append(0.0 if number in ineffective else share)
        neutral.append(moved if event.stored else 0.0)
    return OwnWork(tuple(covered), tuple(neutral))


@dataclass(frozen=True)
class AblationTargets:
    """The candidate's own launches whose effect on the output an ablation should test, by number."""

    weights: dict[int, int]
    """Work of each launch, as bytes plus operations converted to bytes."""
    names: dict[int, str]
    """Kernel of each launch."""

    @classmethod
    def of(cls, trace: Trace, file: str, moves_count: bool) -> AblationTargets:
        """Return the launches of a forward to test; those that only move data count if `moves_count`."""
        launches = [event for event in trace if event.kind == "launch"]
        candidates = {
            number: event for number, event in enumerate(launches) if _may_be_ineffective(event, file, moves_count)
        }
        weights = {number: _weight(event) for number, event in candidates.items()}
        return cls(weights, {number: event.name for number, event in candidates.items()})

    def groups(self, limit: int) -> list[list[int]]:
        """Divide the launches into groups, heaviest first, and return at most `limit` of them.

        If there are at most `limit` launches, each is a group; otherwise the launches of a kernel are one group. A
        single group is not returned: it is the whole candidate.
        """
        groups: dict[object, list[int]] = {}
        for number, name in self.names.items():
            groups.setdefault(number if len(self.names) <= limit else name, []).append(number)
        ordered = sorted(groups.values(), key=lambda numbers: -sum(self.weights[number] for number in numbers))
        return ordered[:limit] if len(groups) > 1 else []

    def without(self, numbers: Collection[int]) -> AblationTargets:
        """Return all launches but these."""
        remaining = {number: weight for number, weight in self.weights.items() if number not in numbers}
        return AblationTargets(remaining, {number: self.names[number] for number in remaining})

    def sample(self, random: Random, count: int) -> list[int]:
        """Draw `count` launches with replacement, with probabilities proportional to their weights."""
        # One is added to each, as a launch may be priced at nothing and would never be drawn.
        return random.choices([*self.weights], [1 + weight for weight in self.weights.values()], k=count)

    def extrapolated(self, random: Random, sample: Sequence[int], ineffective: Collection[int]) -> set[int]:
        """Return the ineffective launches of a sample and random others that were not drawn.

        Others are added until the result's share of the total weight reaches the share of `ineffective` in `sample`.
        """
        target_weight = sum(self.weights.values()) * sum(number in ineffective for number in sample) / len(sample)
        chosen, unsampled = set(ineffective), sorted(self.weights.keys() - set(sample))
        missing_weight = target_weight - sum(self.weights[number] for number in chosen)
        for number in random.sample(unsampled, len(unsampled)):
            if missing_weight <= 0:
                break
            chosen.add(number)
            missing_weight -= self.weights[number]
        return chosen


def _may_be_ineffective(event: TraceEvent, file: str, moves_count: bool) -> bool:
    return bool(own_launches([event], file)) and bool(event.stored if moves_count else event.computed)


def _weight(event: TraceEvent) -> int:
    return event.bytes + event.flops // _OPERATIONS_PER_BYTE


def _computed(event: TraceEvent) -> float:
    if event.stored is None or event.computed is None:  # the device cannot see stores
        return 1.0
    return event.computed / event.stored if event.stored else 0.0


def moves_too_little(trace: Trace, reference: Trace, output_bytes: int) -> bool:
    """Tell whether a trace counts fewer bytes than it takes to write the output: then some work was not counted."""
    return _traffic(trace) < min(output_bytes, _traffic(reference))


def computes(trace: Trace) -> bool:
    """Tell whether a forward contains torch ops that neither move nor gather data."""
    names = [event.name for event in trace if event.kind == "op"]
    # A gather reads by index and computes nothing: an embedding is a task of moving data.
    return any(not _traits(name) & (Trait.MOVES | Trait.GATHERS) for name in names)


def _traits(op: str) -> Trait:
    """Return the traits of an op from its name, with or without the overload (`aten::add.Tensor`)."""
    return row_of(op.partition(".")[0]).traits


def _traffic(trace: Trace) -> int:
    return sum(event.bytes for event in trace)
