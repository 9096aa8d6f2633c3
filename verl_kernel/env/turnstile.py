# SPDX-License-Identifier: Apache-2.0
"""Who gets which judge: urgent requests first, then in the order of arrival, and never a judge that is off duty.

A judge is busy, free, down (its process is being started again) or quarantined until a point in time. As long as any
judge is up, one of them is handed out: quarantine never empties the rotation. Used within one event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

Judge = TypeVar("Judge")
_LONGEST_FACTOR = 64


@dataclass(eq=False)
class Ticket:
    """One request's place in the queue."""

    urgent: bool = False
    avoid: object = None
    """A judge that has failed this request; taken again only where it is the only one in rotation."""
    future: asyncio.Future[Any] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def again(self, judge: object) -> Ticket:
        """The place of a second try: before others, and not with the judge that failed."""
        return Ticket(urgent=True, avoid=judge)


@dataclass(eq=False)
class _Place(Generic[Judge]):
    judge: Judge
    busy: bool = False
    down: bool = False
    benched: asyncio.TimerHandle | None = None
    strikes: int = 0
    bans: int = 0

    @property
    def in_rotation(self) -> bool:
        return not self.down and self.benched is None


class Turnstile(Generic[Judge]):
    """Hands judges to requests.

    Args:
        judges: all of them, free or down.
        strikes: failures in a row after which a judge is quarantined.
        back_off_s: length of the first quarantine; each further one is twice as long, up to 64 times.
        down: whether the judges have yet to be announced by `up`.
    """

    def __init__(
        self, judges: Sequence[Judge], strikes: int = 3, back_off_s: float = 30.0, *, down: bool = False
    ) -> None:
        self._places = [_Place(judge, down=down) for judge in judges]
        self._strikes, self._back_off_s = strikes, back_off_s
        self._queue: list[Ticket] = []
        self._refusal: Exception | None = None

    @property
    def waiting(self) -> int:
        """Requests without a judge."""
        return sum(not ticket.future.done() for ticket in self._queue)

    @property
    def deserted(self) -> bool:
        """Whether every judge is down."""
        return all(place.down for place in self._places)

    def states(self) -> list[str]:
        """One of `free`, `busy`, `down` and `quarantined` for each judge."""
        return [
            "down" if place.down else "busy" if place.busy else "quarantined" if place.benched else "free"
            for place in self._places
        ]

    async def enter(self, ticket: Ticket) -> Judge:
        """Wait for a judge; the caller gives it back with `leave`.

        Raises:
            VerlKernelError: no judge can work, now or later (`refuse`).
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
                self.leave(ticket.future.result())  # it was handed out in the same moment
            raise
        finally:
            if ticket in self._queue:
                self._queue.remove(ticket)

    def leave(self, judge: Judge) -> None:
        """Give a judge back."""
        self._place(judge).busy = False
        self._match()

    def down(self, judge: Judge) -> None:
        """Take a judge whose process ended out of rotation until it is `up`."""
        self._place(judge).down = True
        self._match()

    def up(self, judge: Judge) -> None:
        """Put a judge into rotation again."""
        self._place(judge).down = False
        self._refusal = None
        self._match()

    def well(self, judge: Judge) -> None:
        """Note that a judge has served."""
        place = self._place(judge)
        place.strikes = place.bans = 0

    def blame(self, judge: Judge) -> float:
        """Note that a judge failed where another served; seconds of the quarantine that follows, mostly 0."""
        place = self._place(judge)
        place.strikes += 1
        others = sum(other.in_rotation for other in self._places if other is not place)
        if place.strikes < self._strikes or place.benched is not None or not others:
            return 0.0
        seconds = self._back_off_s * min(2**place.bans, _LONGEST_FACTOR)
        place.bans += 1
        place.strikes = self._strikes - 1  # on probation: the next failure is one too many
        place.benched = asyncio.get_running_loop().call_later(seconds, self._unbench, place)
        return float(seconds)

    def refuse(self, reason: Exception) -> None:
        """Fail all requests, now and later: no judge can work on this machine."""
        self._refusal = reason
        for ticket in self._queue:
            if not ticket.future.done():
                ticket.future.set_exception(reason)

    def _unbench(self, place: _Place[Judge]) -> None:
        place.benched = None
        self._match()

    def _place(self, judge: Judge) -> _Place[Judge]:
        return next(place for place in self._places if place.judge is judge)

    def _match(self) -> None:
        rotation = [place for place in self._places if place.in_rotation]
        if not rotation:  # the last judge standing may have gone down while others sat in quarantine
            rotation = [place for place in self._places if not place.down]
        for place in rotation:
            ticket = None if place.busy else self._next(place, alone=len(rotation) == 1)
            if ticket is not None:
                place.busy = True
                self._queue.remove(ticket)
                ticket.future.set_result(place.judge)

    def _next(self, place: _Place[Judge], *, alone: bool) -> Ticket | None:
        fits = [t for t in self._queue if not t.future.done() and (alone or t.avoid is not place.judge)]
        return next((ticket for ticket in fits if ticket.urgent), fits[0] if fits else None)
