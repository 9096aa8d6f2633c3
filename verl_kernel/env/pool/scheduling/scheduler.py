# SPDX-License-Identifier: Apache-2.0
"""The scheduler of a pool: assigns judges to urgent requests first, then to the others in order of arrival.

A judge is busy, free, down (its process is being restarted), drained, or quarantined for some seconds. Quarantined
judges still serve if there is no other, so quarantine never leaves a pool without judges. Everything here runs in one
event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

Judge = TypeVar("Judge")


@dataclass(eq=False)
class JudgeSlot(Generic[Judge]):
    """A judge with the conditions that keep it from work."""

    judge: Judge
    busy: bool = False
    down: bool = False
    drained: bool = False
    quarantine_timer: asyncio.TimerHandle | None = None
    failures_in_a_row: int = 0
    quarantines: int = 0

    @property
    def available(self) -> bool:
        """Whether it can serve, quarantine aside."""
        return not self.down and not self.drained

    @property
    def in_rotation(self) -> bool:
        """Whether it can serve and is not quarantined."""
        return self.available and self.quarantine_timer is None

    @property
    def state(self) -> str:
        """The judge's state in one word (`JudgeScheduler.states`)."""
        if self.down:
            return "down"
        if self.drained:
            return "draining" if self.busy else "drained"
        return "busy" if self.busy else "free" if self.quarantine_timer is None else "quarantined"


def rotation(slots: Sequence[JudgeSlot[Judge]]) -> list[JudgeSlot[Judge]]:
    """Return the slots in rotation, or the quarantined ones if there are no others."""
    return [slot for slot in slots if slot.in_rotation] or [slot for slot in slots if slot.available]


_LONGEST_FACTOR = 64
"""The longest quarantine, as a multiple of the first."""


@dataclass(eq=False)
class Ticket:
    """One request's place in the queue."""

    urgent: bool = False
    """Whether it goes before requests that are not urgent."""
    avoid: object = None
    """A judge that failed this request; it gets the request again only as the only judge in rotation."""
    future: asyncio.Future[Any] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def again(self, judge: object) -> Ticket:
        """Return the ticket of the next attempt: urgent, and avoiding the judge that failed."""
        return Ticket(urgent=True, avoid=judge)


class JudgeScheduler(Generic[Judge]):
    """The queue of requests and the judges that serve it.

    Args:
        judges: all judges of the pool.
        quarantine_after: failures in a row after which a judge is quarantined.
        quarantine_s: length of the first quarantine; each further one is twice as long, up to 64 times.
        down: whether judges get no work until `up` announces them.
    """

    def __init__(
        self,
        judges: Sequence[Judge],
        quarantine_after: int = 3,
        quarantine_s: float = 30.0,
        *,
        down: bool = False,
    ) -> None:
        self._slots = [JudgeSlot(judge, down=down) for judge in judges]
        self._quarantine_after, self._quarantine_s = quarantine_after, quarantine_s
        self._queue: list[Ticket] = []
        self._refusal: Exception | None = None

    @property
    def waiting(self) -> int:
        """Number of requests that wait for a judge."""
        return sum(not ticket.future.done() for ticket in self._queue)

    def states(self) -> list[str]:
        """Return each judge's state: `free`, `busy`, `down`, `quarantined`, `draining` (still busy) or `drained`."""
        return [slot.state for slot in self._slots]

    async def acquire(self, ticket: Ticket) -> Judge:
        """Wait for a judge; the caller must give it back with `release`.

        Raises:
            VerlKernelError: no judge can ever start (`refuse`).
        """
        if self._refusal is not None:
            raise self._refusal
        self._queue.append(ticket)
        self._match()
        try:
            judge: Judge = await ticket.future
            return judge
        except asyncio.CancelledError:
            if not ticket.future.cancelled() and ticket.future.exception() is None:
                self.release(ticket.future.result())  # a judge was assigned just before the cancellation
            raise
        finally:
            if ticket in self._queue:
                self._queue.remove(ticket)

    def release(self, judge: Judge) -> None:
        """Give a judge back."""
        self._slot(judge).busy = False
        self._match()

    def down(self, judge: Judge) -> None:
        """Take a judge whose process has ended out of rotation until `up` is called."""
        self._slot(judge).down = True
        self._match()

    def up(self, judge: Judge) -> None:
        """Put a judge (back) into rotation."""
        self._slot(judge).down = False
        self._refusal = None
        self._match()

    def drain(self, judge: Judge, on: bool) -> None:
        """Stop giving work to a judge (`on`), or resume."""
        self._slot(judge).drained = on
        self._match()

    def is_drained(self, judge: Judge) -> bool:
        """Tell whether a judge is drained or draining."""
        return self._slot(judge).drained

    def state(self, judge: Judge) -> str:
        """Return the state of one judge (as in `states`)."""
        return self._slot(judge).state

    def note_success(self, judge: Judge) -> None:
        """Record a success: resets the judge's failures and the length of its next quarantine."""
        slot = self._slot(judge)
        slot.failures_in_a_row = slot.quarantines = 0

    def note_failure(self, judge: Judge) -> float:
        """Record a failure on a request that another judge served; return the quarantine in seconds (0: none)."""
        slot = self._slot(judge)
        slot.failures_in_a_row += 1
        peers = sum(peer.in_rotation for peer in self._slots if peer is not slot)
        if slot.failures_in_a_row < self._quarantine_after or slot.quarantine_timer is not None or not peers:
            return 0.0
        seconds = self._quarantine_s * min(2**slot.quarantines, _LONGEST_FACTOR)
        slot.quarantines += 1
        slot.failures_in_a_row = self._quarantine_after - 1  # so that the next failure quarantines it again
        slot.quarantine_timer = asyncio.get_running_loop().call_later(seconds, self._end_quarantine, slot)
        return float(seconds)

    def refuse(self, reason: Exception) -> None:
        """Fail all waiting and future requests with `reason`, until a judge comes `up`."""
        self._refusal = reason
        for ticket in self._queue:
            if not ticket.future.done():
                ticket.future.set_exception(reason)

    def _end_quarantine(self, slot: JudgeSlot[Judge]) -> None:
        slot.quarantine_timer = None
        self._match()

    def _slot(self, judge: Judge) -> JudgeSlot[Judge]:
        return next(slot for slot in self._slots if slot.judge is judge)

    def _match(self) -> None:
        candidates = rotation(self._slots)
        # A judge that failed a request gets it again only as the only one: else the request would starve.
        for slot in candidates:
            ticket = None if slot.busy else self._next(slot, alone=len(candidates) == 1)
            if ticket is not None:
                slot.busy = True
                self._queue.remove(ticket)
                ticket.future.set_result(slot.judge)

    def _next(self, slot: JudgeSlot[Judge], *, alone: bool) -> Ticket | None:
        fits = [t for t in self._queue if not t.future.done() and (alone or t.avoid is not slot.judge)]
        return next((ticket for ticket in fits if ticket.urgent), fits[0] if fits else None)
