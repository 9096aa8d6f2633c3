# SPDX-License-Identifier: Apache-2.0
"""Who gets which judge: urgent requests first, then in the order of arrival, and never a judge that is off duty.

A judge is busy, free, down (its process is being started again), drained, or quarantined until a point in time. As
long as any judge of a GPU model can serve, one of them is handed out: quarantine never empties the rotation. Requests
for one prompt share a pin, which keeps them with one model. Used within one event loop.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from verl_kernel.env.lru import LRUCache
from verl_kernel.env.task import Task

# The judges behind a scheduler, and which of them may be handed out.


Judge = TypeVar("Judge")


@dataclass(eq=False)
class JudgeSlot(Generic[Judge]):
    """One judge and what keeps it from work."""

    judge: Judge
    model: str = ""
    busy: bool = False
    down: bool = False
    drained: bool = False
    quarantine_timer: asyncio.TimerHandle | None = None
    failures_in_a_row: int = 0
    quarantines: int = 0

    @property
    def available(self) -> bool:
        """Whether it can serve, in quarantine or not."""
        return not self.down and not self.drained

    @property
    def in_rotation(self) -> bool:
        """Whether it is handed out."""
        return self.available and self.quarantine_timer is None

    @property
    def state(self) -> str:
        """One word for a table."""
        if self.down:
            return "down"
        if self.drained:
            return "draining" if self.busy else "drained"
        return "busy" if self.busy else "free" if self.quarantine_timer is None else "quarantined"


def rotation(slots: Sequence[JudgeSlot[Judge]]) -> list[JudgeSlot[Judge]]:
    """The slots in rotation; those in quarantine too where their model has nobody else."""
    served = {slot.model for slot in slots if slot.in_rotation}
    return [slot for slot in slots if slot.in_rotation or (slot.available and slot.model not in served)]


def present_models(slots: Sequence[JudgeSlot[Judge]]) -> set[str]:
    """Models with a judge that can serve or still does."""
    return {slot.model for slot in slots if slot.available or (slot.drained and slot.busy and not slot.down)}


# Which GPU models of a pool have been without a judge for too long.


_LOG = logging.getLogger(__name__)


class Absences:
    """Used within one event loop.

    Args:
        limit_s: seconds without a judge after which a model is lost.
        on_loss: called when one is.
    """

    def __init__(self, limit_s: float, on_loss: Callable[[], None]) -> None:
        self._limit_s, self._on_loss = limit_s, on_loss
        self._known: set[str] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self.lost: set[str] = set()
        """Models that have had judges, and have none now and for longer than the limit."""

    def note(self, present: set[str]) -> None:
        """Take down which models have a judge now."""
        for model in present & self._timers.keys():
            self._timers.pop(model).cancel()
        for model in self._known - present - self._timers.keys() - self.lost:
            self._timers[model] = asyncio.get_running_loop().call_later(self._limit_s, self._lose, model)
        self.lost -= present
        self._known |= present

    def _lose(self, model: str) -> None:
        del self._timers[model]
        self.lost.add(model)
        others = sorted(self._known - self.lost)
        if others:
            _LOG.warning(
                "no judge of %s for %g s: its prompts go to %s, and their results say so",
                model, self._limit_s, " or ".join(others),
            )  # fmt: skip
        self._on_loss()


# Which GPU model judges a prompt: that of the first judge it meets, and then no other.
#
# Rollouts of one prompt are compared with each other, and times of two models cannot be. What they have in common is
# the task and the step. The first judge to spare decides, so a faster model takes more prompts. Only where a model
# has been without judges for `kernelgym.model_wait_s` does another take its prompts over; their later results say so.


CHANGED = "gpu_model_changed"
"""Key in `EvalResult.env`: the model that judged earlier rollouts of the same prompt."""
_CAPACITY = 16384
_next_serial: Callable[[], int] = itertools.count().__next__


@dataclass(eq=False)
class Pin:
    """The model of one prompt in one step."""

    model: str | None = None
    """None until its first evaluation gets a judge."""
    serial: int = field(default_factory=_next_serial)
    """Changes with the model, so that a verdict cached under it was measured on this model."""
    judged: list[str] = field(default_factory=list)
    """The models that have answered, the latest last: one may do so after the prompt has gone to another."""

    def take(self, model: str) -> None:
        """Note which model judges from now on."""
        if self.model not in (None, model):
            self.serial = _next_serial()
        self.model = model

    def note(self, model: str) -> dict[str, str]:
        """Note that a model has judged; what its result says in `env` where another one has judged the prompt."""
        others = [other for other in self.judged if other != model]
        self.judged = [*others, model]
        return {CHANGED: others[-1]} if others else {}


class Pins:
    """The pins of the prompts asked for most recently."""

    def __init__(self, capacity: int = _CAPACITY) -> None:
        self._pins: LRUCache[Pin] = LRUCache(capacity)

    def of(self, task: Task, step: int | None) -> Pin:
        """The pin of a task in a step; without a step, of the task."""
        key = f"{task.fingerprint} {step}"
        return self._pins.get(key) or self._pins.put(key, Pin())


_LONGEST_FACTOR = 64


@dataclass(eq=False)
class Ticket:
    """One request's place in the queue."""

    urgent: bool = False
    avoid: object = None
    """A judge that has failed this request; taken again only where it is the only one of its model in rotation."""
    pin: Pin = field(default_factory=Pin)
    """What keeps this request and those like it with one model."""
    future: asyncio.Future[Any] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def again(self, judge: object) -> Ticket:
        """The place of a second try: before others, and not with the judge that failed."""
        return Ticket(urgent=True, avoid=judge, pin=self.pin)


class JudgeScheduler(Generic[Judge]):
    """Hands judges to requests.

    Args:
        judges: all of them, free or down.
        quarantine_after: failures in a row after which a judge is quarantined.
        quarantine_s: length of the first quarantine; each further one is twice as long, up to 64 times.
        down: whether the judges have yet to be announced by `up`.
        model_wait_s: how long requests wait for a model without judges before another model takes them.
    """

    def __init__(
        self,
        judges: Sequence[Judge],
        quarantine_after: int = 3,
        quarantine_s: float = 30.0,
        *,
        down: bool = False,
        model_wait_s: float = 60.0,
    ) -> None:
        self._slots = [JudgeSlot(judge, down=down) for judge in judges]
        self._quarantine_after, self._quarantine_s = quarantine_after, quarantine_s
        self._absences = Absences(model_wait_s, self._match)
        self._queue: list[Ticket] = []
        self._refusal: Exception | None = None

    @property
    def waiting(self) -> int:
        """Requests without a judge."""
        return sum(not ticket.future.done() for ticket in self._queue)

    def states(self) -> list[str]:
        """`free`, `busy`, `down`, `quarantined`, `draining` (finishing its last) or `drained`, for each judge."""
        return [slot.state for slot in self._slots]

    async def acquire(self, ticket: Ticket) -> Judge:
        """Wait for a judge; the caller gives it back with `release`.

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
                self.release(ticket.future.result())  # it was handed out in the same moment
            raise
        finally:
            if ticket in self._queue:
                self._queue.remove(ticket)

    def release(self, judge: Judge) -> None:
        """Give a judge back."""
        slot = self._slot(judge)
        slot.busy = False
        if slot.drained:
            self._note_models()
        self._match()

    def down(self, judge: Judge) -> None:
        """Take a judge whose process ended out of rotation until it is `up`."""
        self._slot(judge).down = True
        self._note_models()
        self._match()

    def up(self, judge: Judge, model: str = "") -> None:
        """Put a judge, whose times are of `model`, into rotation again."""
        slot = self._slot(judge)
        slot.down, slot.model = False, model
        self._refusal = None
        self._note_models()
        self._match()

    def drain(self, judge: Judge, on: bool) -> None:
        """Give a judge nothing new; or take that back."""
        self._slot(judge).drained = on
        self._note_models()
        self._match()

    def is_drained(self, judge: Judge) -> bool:
        """Whether a judge gets nothing new."""
        return self._slot(judge).drained

    def state(self, judge: Judge) -> str:
        """The state of one judge."""
        return self._slot(judge).state

    def note_success(self, judge: Judge) -> None:
        """Note that a judge has served."""
        slot = self._slot(judge)
        slot.failures_in_a_row = slot.quarantines = 0

    def note_failure(self, judge: Judge) -> float:
        """Note that a judge failed where another served; seconds of the quarantine that follows, mostly 0."""
        slot = self._slot(judge)
        slot.failures_in_a_row += 1
        others = sum(other.in_rotation for other in self._slots if other is not slot and other.model == slot.model)
        if slot.failures_in_a_row < self._quarantine_after or slot.quarantine_timer is not None or not others:
            return 0.0
        seconds = self._quarantine_s * min(2**slot.quarantines, _LONGEST_FACTOR)
        slot.quarantines += 1
        slot.failures_in_a_row = self._quarantine_after - 1  # so that the next failure quarantines it again
        slot.quarantine_timer = asyncio.get_running_loop().call_later(seconds, self._end_quarantine, slot)
        return float(seconds)

    def refuse(self, reason: Exception) -> None:
        """Fail all requests, now and later: no judge can work on this machine."""
        self._refusal = reason
        for ticket in self._queue:
            if not ticket.future.done():
                ticket.future.set_exception(reason)

    def _end_quarantine(self, slot: JudgeSlot[Judge]) -> None:
        slot.quarantine_timer = None
        self._match()

    def _slot(self, judge: Judge) -> JudgeSlot[Judge]:
        return next(slot for slot in self._slots if slot.judge is judge)

    def _note_models(self) -> None:
        self._absences.note(present_models(self._slots))

    def _match(self) -> None:
        candidates = rotation(self._slots)
        peers = Counter(slot.model for slot in candidates)
        for slot in candidates:
            ticket = None if slot.busy else self._next(slot, alone=peers[slot.model] == 1)
            if ticket is not None:
                slot.busy = True
                ticket.pin.take(slot.model)
                self._queue.remove(ticket)
                ticket.future.set_result(slot.judge)

    def _next(self, slot: JudgeSlot[Judge], *, alone: bool) -> Ticket | None:
        models = {None, slot.model, *self._absences.lost}
        fits = [t for t in self._queue if not t.future.done() and t.pin.model in models]
        fits = [t for t in fits if alone or t.avoid is not slot.judge]
        return next((ticket for ticket in fits if ticket.urgent), fits[0] if fits else None)
