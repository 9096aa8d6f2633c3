# SPDX-License-Identifier: Apache-2.0
"""Whether a candidate does at the true size what it did where its outputs were verified.

A program may look at its sizes, be right where they are small and leave work out where they are large. Four things
must stay: the sequence of ops and kernels; the instructions of its source; the share of each tensor that a launch loads
and stores; its operations, which must grow as the reference's do.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import log

from verl_kernel.env.ipc.execution_messages import Tally
from verl_kernel.env.trace import TraceEvent
from verl_kernel.env.true_size.opcodes import Instruction

_COVERED, _GROWN, _EXTRAPOLATED = 0.95, 0.9, 0.5
"""Parts of the expected share, and of the expected operations, that must be there; of the latter less where they are
expected from two sizes."""


@dataclass(frozen=True)
class Verified:
    """A forward whose output was right, at one size."""

    events: Sequence[TraceEvent]
    flops: int
    """Of the reference at this size."""

    @property
    def ratio(self) -> float:
        """The candidate's operations over the reference's."""
        return _flops(self.events) / max(1, self.flops)


@dataclass(frozen=True)
class Followed:
    """A forward without data."""

    events: Sequence[TraceEvent]
    coverage: Sequence[Mapping[str, float]]
    """For each launch, the share of each tensor that it loads and stores."""
    instructions: Collection[Instruction] = ()
    tallies: Sequence[Tally] = ()
    """Of its launches, from the executing process, where that ran them."""


def difference(
    verified: Sequence[Verified], known: Collection[Instruction], small: Followed, true: Followed, flops: int
) -> str | None:
    """What differs at the true size, in a sentence, or None.

    Args:
        verified: forwards at reduced sizes, the smallest first.
        known: instructions that ran in verified forwards.
        small: the forward without data at the first of these sizes.
        true: at the true size.
        flops: of the reference at the true size.
    """
    return (
        _sequence(verified[-1].events, true.events)
        or _instructions(known, true.instructions)
        or _coverage(small, true)
        or _operations(verified, Verified(true.events, flops))
    )


def _sequence(verified: Sequence[TraceEvent], true: Sequence[TraceEvent]) -> str | None:
    ours, theirs = [event.name for event in true], [event.name for event in verified]
    if ours == theirs:
        return None
    at = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
    there = ours[at] if at < len(ours) else "nothing"
    then = theirs[at] if at < len(theirs) else "nothing"
    return f"kernel or op {at + 1} is {there} at the true size and {then} where the output was verified"


def _instructions(known: Collection[Instruction], seen: Collection[Instruction]) -> str | None:
    new = sorted({line for _, line, _ in set(seen) - set(known)})
    if not new:
        return None
    return f"line {new[0]} runs at the true size what never ran where the output was verified"


def _coverage(small: Followed, true: Followed) -> str | None:
    for number, (before, now) in enumerate(zip(small.coverage, true.coverage, strict=False)):
        for key, share in before.items():
            if now.get(key, 0.0) < _COVERED * share:
                what, _, name = key.partition(" ")
                return (
                    f"launch {number + 1} {what}s {now.get(key, 0.0):.0%} of {name or 'a tensor'} at the true size and "
                    f"{share:.0%} at a reduced one"
                )
    return None


def _operations(verified: Sequence[Verified], true: Verified) -> str | None:
    expected, least = _expected(verified, true)
    if true.flops <= 0 or true.ratio >= least * expected:
        return None
    return (
        f"the operations grow less than the reference's: {true.ratio:.3g} times as many at the true size, "
        f"{verified[-1].ratio:.3g} times where the output was verified"
    )


def _expected(verified: Sequence[Verified], true: Verified) -> tuple[float, float]:
    """The ratio of operations expected at the true size, and how much of it must be there.

    Padding of blocks makes the ratio fall towards what the work takes, so above 1 nothing is expected but 1. Below 1
    the candidate has a cheaper way; if that gained between two verified sizes it may go on to gain.
    """
    small, large = verified[0], verified[-1]
    falls = 0 < large.ratio < min(1.0, small.ratio) and 0 < small.flops < large.flops < true.flops
    if not falls:
        return min(1.0, large.ratio), _GROWN
    steps = log(true.flops / large.flops) / log(large.flops / small.flops)
    return large.ratio * (large.ratio / small.ratio) ** steps, _EXTRAPOLATED


def _flops(events: Sequence[TraceEvent]) -> int:
    return sum(event.flops for event in events)
