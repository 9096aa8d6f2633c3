# SPDX-License-Identifier: Apache-2.0
"""A candidate's forward at one size in numbers, and which of its operations count.

An operation on nothing is none. Of products it is known where they were of nothing. Of other operations it is guessed
from the lanes that masks hold back, but not where operations take the time of a launch: there a kernel could hide by
idle lanes, where it is verified, what it leaves out at the true size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from verl_kernel.env.executor.work import NARROW, PRODUCTS, WIDE
from verl_kernel.env.ipc.execution_messages import Tally
from verl_kernel.env.trace import TraceEvent

_BOUND = 16
"""Instructions for each byte of a launch's tensors from which on they take its time: an H100 issues 9 in the time of
one byte."""
_PADDED = 1.5
"""How many times as large as its tensor the tiles of an output may be, where reduced sizes are verified."""


@dataclass(frozen=True)
class Counted:
    """A candidate's forward at one size."""

    events: Sequence[TraceEvent]
    tallies: Sequence[Tally]
    """Of its launches."""
    flops: int
    """Of the reference at this size."""
    read: float
    """The part of its inputs that the reference reads."""

    def ratio(self, true: Sequence[Tally]) -> float:
        """The candidate's operations over the reference's, those on nothing left out.

        Args:
            true: its launches at the true size.
        """
        pairs = zip(self.tallies, true, strict=True)
        done = [sum(products(one)) + _others(one) * (1.0 if _is_bound(now) else _busy(one)) for one, now in pairs]
        return (self._ops + sum(done)) / max(1, self.flops)

    def passes(self, true: Sequence[Tally]) -> float:
        """Its products over the reference's operations, several for each if float32 is multiplied by a narrower unit.

        Rows and columns that are not stored do not count. It is 0 where the forward is no product of float32.

        Args:
            true: its launches at the true size, where more of the rows and columns may be stored.
        """
        is_float32 = any(kind == "*fp32" for one in true for kind in one["types"].values())
        if not is_float32 or 2 * sum(sum(products(one)) for one in true) <= sum(map(flops, true)):
            return 0.0
        pairs = zip(self.tallies, true, strict=True)
        return (self._ops + sum(sum(products(one)) * _stored(one, now) for one, now in pairs)) / max(1, self.flops)

    @property
    def _ops(self) -> int:
        return sum(event.flops for event in self.events if event.kind == "op")


def products(one: Tally) -> list[int]:
    """Operations by products, by unit, those on nothing left out."""
    return [one["operations"][unit] - one["voids"].get(unit, 0) for unit in PRODUCTS]


def flops(one: Tally) -> int:
    """All operations, those on nothing left out where it is known."""
    return sum(products(one)) + _others(one)


def _others(one: Tally) -> int:
    return sum(one["operations"][unit] for unit in (NARROW, WIDE))


def _busy(one: Tally) -> float:
    """The part of its lanes that masks let through."""
    return one["useful"] / max(1, one["offered"])


def _is_bound(one: Tally) -> bool:
    """Whether operations, and not bytes, take its time."""
    moved = sum(area[1] + area[3] for area in one["areas"].values())
    return max(one["operations"][unit] for unit in ("issue", "integer", "special")) > _BOUND * moved


def _stored(one: Tally, true: Tally) -> float:
    """The part of rows and columns of products that is stored, over that at the true size."""
    here, there = (each["stores"][0] / max(1, each["stores"][1]) for each in (one, true))
    return max(1 / _PADDED, min(1.0, here / there)) if there else 1.0
