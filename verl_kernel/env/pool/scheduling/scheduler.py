# SPDX-License-Identifier: Apache-2.0
"""The scheduler of a pool: assigns judges to urgent requests first, then to the others in order of arrival.

A judge is busy, free, down (its process is being restarted), drained, or quarantined for some seconds. Quarantined
judges still serve if they are the only ones of their GPU model, so quarantine never leaves a model without judges.
Requests for one prompt share a pin, which keeps them on one GPU model. A free judge takes those first whose reference
it has prepared. Everything here runs in one event loop.
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

# The judges of a scheduler, and which of them may be assigned.


Judge = TypeVar("Judge")


@dataclass(eq=False)
class JudgeSlot(Generic[Judge]):
    """A judge with the conditions that keep it from work."""

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
    """Return the slots in rotation, plus quarantined ones whose model has no other judge."""
    served = {slot.model for slot in slots if slot.in_rotation}
    return [slot for slot in slots if slot.in_rotation or (slot.available and slot.model not in served)]


def present_models(slots: Sequence[JudgeSlot[Judge]]) -> set[str]:
    """Return the GPU models of judges that can serve, or are drained and still finish a request."""
    return {slot.model for slot in slots if slot.available or (slot.drained and slot.busy and not slot.down)}


# GPU models of a pool that have been without a judge for too long.


_LOG = logging.getLogger(__name__)


class Absences:
    """A watch on the GPU models of a pool, within one event loop.

    Args:
        limit_s: seconds without a judge after which a model counts as lost.
        on_loss: called each time that a model becomes lost.
    """

    def __init__(self, limit_s: float, on_loss: Callable[[], None]) -> None:
        self._limit_s, self._on_loss = limit_s, on_loss
        self._models: set[str] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self.lost: set[str] = set()
        """Models that once had a judge and have had none for longer than the limit."""

    def note(self, present: set[str]) -> None:
        """Record which models have a judge now; starts and stops their timers."""
        for model in present & self._timers.keys():
            self._timers.pop(model).cancel()
        for model in self._models - present - self._timers.keys() - self.lost:
            self._timers[model] = asyncio.get_running_loop().call_later(self._limit_s, self._lose, model)
        self.lost -= present
        self._models |= present

    def _lose(self, model: str) -> None:
        del self._timers[model]
        self.lost.add(model)
        remaining = sorted(self._models - self.lost)
        if remaining:
            _LOG.warning(
                "no judge of %s for %g s: its prompts go to %s, and their results say so",
                model,
                self._limit_s,
                " or ".join(remaining),
            )
        self._on_loss()


# Pins: all rollouts of a prompt are judged on the GPU model of the judge that takes the first of them.
#
# Training compares the rollouts of a prompt with each other, and times on two GPU models cannot be compared. Requests
# belong to the same prompt if they share the task and the step. The first free judge decides, so a faster model takes
# more prompts. If a model has had no judge for `kernelgym.model_wait_s`, another model takes over its prompts, and
# their later results say so (`CHANGED`).


CHANGED = "gpu_model_changed"
"""Key in `EvalResult.env`; its value is the other GPU model that judged earlier rollouts of the same prompt."""
_CAPACITY = 16384
_next_serial: Callable[[], int] = itertools.count().__next__


@dataclass(eq=False)
class Pin:
    """The GPU model of one prompt in one step."""

    model: str | None = None
    """None until the prompt's first evaluation gets a judge."""
    serial: int = field(default_factory=_next_serial)
    """Changes with the model; as part of the cache key it separates verdicts of different models."""
    judged: list[str] = field(default_factory=list)
    """The models that have answered, latest last; one may still answer after another has taken over the prompt."""
    holders: set[JudgeSlot[Any]] = field(default_factory=set)
    """The judges that have prepared the prompt's reference, or do so now."""

    def take(self, model: str) -> None:
        """Record the model that judges this prompt from now on."""
        if self.model not in (None, model):
            self.serial = _next_serial()
        self.model = model

    def distance(self, slot: JudgeSlot[Any]) -> int:
        """Return 0 if the judge has the reference prepared, 1 if no judge at work has, 2 if others have."""
        if slot in self.holders:
            return 0
        return 2 if any(holder.in_rotation for holder in self.holders) else 1

    def note(self, model: str) -> dict[str, str]:
        """Record that a model has judged; return the entry for its result's `env` if another has judged before."""
        earlier = [earlier_model for earlier_model in self.judged if earlier_model != model]
        self.judged = [*earlier, model]
        return {CHANGED: earlier[-1]} if earlier else {}


class Pins:
    """The pins of the `capacity` most recently requested prompts."""

    def __init__(self, capacity: int = _CAPACITY) -> None:
        self._pins: LRUCache[Pin] = LRUCache(capacity)

    def of(self, task: Task, step: int | None) -> Pin:
        """Return the pin of a task in a step; if `step` is None, that of the task."""
        key = f"{task.cache_key} {step}"
        return self._pins.get(key) or self._pins.put(key, Pin())


_MOST_PASSED = 32
"""Later requests that may be served before an earlier one, whose reference another judge has prepared."""
_LONGEST_FACTOR = 64
"""The longest quarantine, as a multiple of the first."""


@dataclass(eq=False)
class Ticket:
    """One request's place in the queue."""

    urgent: bool = False
    """Whether it goes before requests that are not urgent."""
    avoid: object = None
    """A judge that failed this request; it gets the request again only as its model's only judge in rotation."""
    pin: Pin = field(default_factory=Pin)
    """The pin of the request's prompt."""
    passed: int = 0
    """How many later requests were served before it."""
    future: asyncio.Future[Any] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def again(self, judge: object) -> Ticket:
        """Return the ticket of the next attempt: urgent, and avoiding the judge that failed."""
        return Ticket(urgent=True, avoid=judge, pin=self.pin)


class JudgeScheduler(Generic[Judge]):
    """The queue of requests and the judges that serve it.

    Args:
        judges: all judges of the pool.
        quarantine_after: failures in a row after which a judge is quarantined.
        quarantine_s: length of the first quarantine; each further one is twice as long, up to 64 times.
        down: whether judges get no work until `up` announces them.
        model_wait_s: seconds that requests wait for a model without judges before another model takes them.
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
        slot = self._slot(judge)
        slot.busy = False
        if slot.drained:
            self._note_models()
        self._match()

    def down(self, judge: Judge) -> None:
        """Take a judge whose process has ended out of rotation until `up` is called."""
        self._slot(judge).down = True
        self._note_models()
        self._match()

    def up(self, judge: Judge, model: str = "") -> None:
        """Put a judge (back) into rotation; `model` is its GPU model."""
        slot = self._slot(judge)
        slot.down, slot.model = False, model
        self._refusal = None
        self._note_models()
        self._match()

    def drain(self, judge: Judge, on: bool) -> None:
        """Stop giving work to a judge (`on`), or resume."""
        self._slot(judge).drained = on
        self._note_models()
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
        peers = sum(peer.in_rotation for peer in self._slots if peer is not slot and peer.model == slot.model)
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

    def _note_models(self) -> None:
        self._absences.note(present_models(self._slots))

    def _match(self) -> None:
        candidates = rotation(self._slots)
        # A judge that failed a request gets it again only as its model's only one: else the request would starve.
        peers = Counter(slot.model for slot in candidates)
        # Judges that have a request's reference first, then any: none waits while there is work.
        for farthest in (0, 2):
            for slot in candidates:
                ticket = None if slot.busy else self._next(slot, alone=peers[slot.model] == 1)
                if ticket is not None and ticket.pin.distance(slot) <= farthest:
                    slot.busy = True
                    for passed in self._queue[: self._queue.index(ticket)]:
                        passed.passed += 1
                    ticket.pin.take(slot.model)
                    ticket.pin.holders.add(slot)
                    self._queue.remove(ticket)
                    ticket.future.set_result(slot.judge)

    def _next(self, slot: JudgeSlot[Judge], *, alone: bool) -> Ticket | None:
        # Prompts of a lost model go to any judge; those without a pin are pinned by the judge that takes them.
        models = {None, slot.model, *self._absences.lost}
        fits = [t for t in self._queue if not t.future.done() and t.pin.model in models]
        fits = [t for t in fits if alone or t.avoid is not slot.judge]
        fits = [t for t in fits if t.urgent] or [t for t in fits if t.passed >= _MOST_PASSED] or fits
        return min(fits, key=lambda ticket: ticket.pin.distance(slot), default=None)
