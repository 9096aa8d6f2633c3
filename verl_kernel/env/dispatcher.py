# SPDX-License-Identifier: Apache-2.0
"""What both pools have in common: a bounded queue, a memory of verdicts, a second try elsewhere, judges brought back.

All of it runs in one event loop. An evaluation that fails for reasons of ours is done once more, on another judge if
there is one, and is `infra_error` after that. A failed judge is out of rotation until it answers again; one that
fails again and again where others serve is quarantined. Where the queue is full, callers wait.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from verl_kernel.env.memo import Pending, VerdictMemo, verdict_key
from verl_kernel.env.options import GymOptions
from verl_kernel.env.pool_stats import JudgeStats, PoolStats, Tally
from verl_kernel.env.result import EvalError, EvalResult, EvalStatus
from verl_kernel.env.task import Task
from verl_kernel.env.turnstile import Turnstile
from verl_kernel.errors import ConfigError, EnvironmentNotReady, InfraError, TaskError

_LOG = logging.getLogger(__name__)
Job = tuple[Task, str, str]
"""Task, source, and the caller's name for the source."""
ATTEMPTS = 2
_MEMORY = 4096
_REVIVAL_S = 1.0
_LONGEST_REVIVAL_S = 60.0


class JudgeHandle(Protocol):
    """A judge as the dispatcher sees it."""

    async def evaluate(self, job: Job) -> EvalResult:
        """Judge one candidate; raises InfraError where that failed for reasons of ours."""
        ...

    async def revive(self) -> None:
        """Return once it can serve (again); raises InfraError if it cannot now, EnvironmentNotReady if never."""
        ...

    def describe(self) -> tuple[str, int | None]:
        """Its node and its process id."""
        ...


Handle = TypeVar("Handle", bound=JudgeHandle)


class Observer:
    """Is told what happens; this one does not listen."""

    def result(self, result: EvalResult, seconds: float) -> None:
        """An evaluation has ended after `seconds`, its time in the queue included."""

    def state(self, stats: PoolStats) -> None:
        """The pool after that."""


class Dispatcher(Generic[Handle]):
    """Judges candidates with the given judges.

    Args:
        judges: handles, none of them started.
        options: limits of the queue and rules of quarantine.
        observer: is told of every evaluation.
    """

    def __init__(self, judges: Sequence[Handle], options: GymOptions, observer: Observer | None = None) -> None:
        self._judges = list(judges)
        self._turnstile: Turnstile[Handle] = Turnstile(
            self._judges, options.quarantine_after, options.quarantine_s, down=True
        )
        self._doors = {urgent: asyncio.Semaphore(options.queue_size + len(judges)) for urgent in (False, True)}
        self._held_back = 0
        self._memo, self._unfit, self._tally = VerdictMemo(_MEMORY), UnfitTasks(), Tally()
        self._observer = observer or Observer()
        self._refusals: dict[int, Exception] = {}
        self._starts: list[asyncio.Task[None]] = []
        self._background: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Start the judges, once, without waiting for them."""
        if not self._starts:
            self._starts = [asyncio.ensure_future(self._bring_up(judge)) for judge in self._judges]

    async def evaluate(self, job: Job, *, validate: bool = False, step: int | None = None) -> EvalResult:
        """Judge one candidate, or answer with the verdict on the same source for the same task in the same step.

        Raises:
            TaskError: the reference cannot serve.
            EnvironmentNotReady: no judge can work here.
        """
        await self.start()
        task, source, kernel = job
        key = verdict_key(task, source, step)
        pending = self._known(key, validate)
        if pending is not None:
            result = await pending.wait()
        else:
            result = await self._admit(key, job, validate)
        return result.model_copy(update={"task_id": task.task_id, "kernel": kernel})

    async def ready(self) -> None:
        """Return when all judges have started.

        Raises:
            EnvironmentNotReady: one of them cannot work.
        """
        await self.start()
        await asyncio.shield(asyncio.gather(*self._starts))
        if self._refusals:
            raise next(iter(self._refusals.values()))

    async def stats(self) -> PoolStats:
        """The pool at this moment."""
        return self._stats()

    async def forget(self) -> None:
        """Forget all verdicts."""
        self._memo.forget()

    async def close(self) -> None:
        """Stop looking after judges, and refuse requests."""
        for task in [*self._starts, *self._background]:
            task.cancel()
        self._turnstile.refuse(InfraError("the pool has been closed"))

    def _stats(self) -> PoolStats:
        places = zip(self._judges, self._turnstile.states(), strict=True)
        judges = []
        for number, (judge, state) in enumerate(places):
            node, pid = judge.describe()
            judges.append(JudgeStats(number=number, state=state, node=node, pid=pid))
        return self._tally.stats(tuple(judges), self._turnstile.waiting, self._held_back)

    def _known(self, key: str, validate: bool) -> Pending | None:
        pending = self._memo.get(key)
        if pending is not None:
            self._tally.remembered += 1
            if validate:
                pending.ticket.urgent = True
        return pending

    async def _admit(self, key: str, job: Job, validate: bool) -> EvalResult:
        self._held_back += 1
        try:
            await self._doors[validate].acquire()
        finally:
            self._held_back -= 1
        try:
            pending = self._known(key, validate)  # somebody may have asked while this request waited
            if pending is None:
                pending = self._memo.put(key, Pending(lambda own: self._judge(job, own), urgent=validate))
            return await pending.wait()
        finally:
            self._doors[validate].release()

    async def _judge(self, job: Job, pending: Pending) -> EvalResult:
        self._unfit.check(job)
        asked = time.monotonic()
        result, waited = await self._attempts(job, pending)
        self._tally.note(result)
        self._tally.infra_errors += result.status is EvalStatus.INFRA_ERROR
        self._observer.result(result, time.monotonic() - asked)
        self._observer.state(self._stats())
        return result.model_copy(update={"queue_seconds": waited})

    async def _attempts(self, job: Job, pending: Pending) -> tuple[EvalResult, float]:
        asked, waited = time.monotonic(), 0.0
        suspect: Handle | None = None
        failure: Exception = InfraError("no attempt was made")
        for attempt in range(1, ATTEMPTS + 1):
            judge = await self._turnstile.enter(pending.ticket)
            pending.started = True
            waited = time.monotonic() - asked if attempt == 1 else waited
            self._tally.evaluations += 1
            try:
                result = await judge.evaluate(job)
            except InfraError as exc:
                failure, suspect = exc, judge
                self._failed(judge, job, attempt, exc)
                pending.ticket = pending.ticket.again(judge)
                continue
            except TaskError as exc:
                raise self._unfit.remember(job, exc) from None
            finally:
                self._turnstile.leave(judge)
            self._served(judge, suspect)
            return result.model_copy(update={"attempts": attempt}), waited
        return not_judged(job, failure), waited

    def _failed(self, judge: Handle, job: Job, attempt: int, exc: Exception) -> None:
        then = "on to the next attempt" if attempt < ATTEMPTS else "the candidate is not judged"
        _LOG.warning(
            "judge %d failed on task %s (attempt %d of %d; %s): %s",
            self._judges.index(judge), job[0].task_id, attempt, ATTEMPTS, then, exc,
        )  # fmt: skip
        self._tally.retries += attempt < ATTEMPTS
        self._turnstile.down(judge)
        self._in_background(judge)

    def _served(self, judge: Handle, suspect: Handle | None) -> None:
        """A failure is held against a judge only where another one served: else it may be the job's."""
        self._turnstile.well(judge)
        if suspect is not None and suspect is not judge:
            self._punish(suspect)

    def _punish(self, judge: Handle) -> None:
        seconds = self._turnstile.blame(judge)
        if seconds:
            self._tally.quarantines += 1
            number = self._judges.index(judge)
            _LOG.warning("judge %d keeps failing: out of rotation for %g s", number, seconds)

    def _in_background(self, judge: Handle) -> None:
        task = asyncio.ensure_future(self._bring_up(judge))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _bring_up(self, judge: Handle) -> None:
        """Put a judge into rotation as soon as it answers."""
        number, pause = self._judges.index(judge), _REVIVAL_S
        while True:
            try:
                await judge.revive()
                break
            except (EnvironmentNotReady, ConfigError) as exc:
                _LOG.error("judge %d cannot work: %s", number, exc)
                self._refusals[number] = exc
                if len(self._refusals) == len(self._judges):
                    self._turnstile.refuse(exc)
                return
            except InfraError as exc:
                _LOG.warning("judge %d does not start, next try in %g s: %s", number, pause, exc)
            if self._turnstile.deserted:  # requests must learn what is wrong rather than wait for ever
                break
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_REVIVAL_S)
        self._refusals.pop(number, None)
        self._turnstile.up(judge)


class UnfitTasks:
    """References that cannot serve, so that each is tried once and not once per candidate."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}

    def check(self, job: Job) -> None:
        """Raise TaskError for a task that failed before."""
        if job[0].fingerprint in self._reasons:
            raise TaskError(self._reasons[job[0].fingerprint])

    def remember(self, job: Job, failure: TaskError) -> TaskError:
        """Note that a task cannot serve."""
        self._reasons[job[0].fingerprint] = str(failure)
        return TaskError(str(failure))


def not_judged(job: Job, failure: Exception) -> EvalResult:
    """The result of an evaluation that failed for reasons of ours, twice."""
    task, _, kernel = job
    error = EvalError(stage="pool", type=type(failure).__name__, message=str(failure)[:2000])
    status = EvalStatus.INFRA_ERROR
    return EvalResult(task_id=task.task_id, kernel=kernel, status=status, error=error, attempts=ATTEMPTS)
