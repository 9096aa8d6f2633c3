# SPDX-License-Identifier: Apache-2.0
"""What both pools have in common: a bounded queue, a memory of verdicts, a second try elsewhere, judges brought back.

All of it runs in one event loop. An evaluation that fails for reasons of ours is done once more, on another judge if
there is one, and is `infra_error` after that; what went down with its judge is done again up to three times. A failed
judge is out of rotation until it answers again; one that fails again and again where others serve is quarantined.
All rollouts of a prompt are judged on one GPU model. Where the queue is full, callers wait.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Sequence
from typing import Generic

from verl_kernel.env.options import GymOptions
from verl_kernel.env.pool.scheduling.judge_handle import Handle, Job, JudgeLost
from verl_kernel.env.pool.scheduling.pins import Pin, Pins
from verl_kernel.env.pool.scheduling.scheduler import Ticket, Turnstile
from verl_kernel.env.pool.scheduling.tries import Tries
from verl_kernel.env.pool.scheduling.unfit_tasks import UnfitTasks
from verl_kernel.env.pool.stats import JudgeStats, PoolStats, Tally
from verl_kernel.env.pool.upkeep import Upkeep
from verl_kernel.env.pool.verdict_cache import Pending, VerdictMemo, verdict_key
from verl_kernel.env.result import EvalError, EvalResult, EvalStatus
from verl_kernel.errors import InfraError, TaskError

_LOG = logging.getLogger(__name__)
_MEMORY = 4096


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
            self._judges, options.quarantine_after, options.quarantine_s, down=True, model_wait_s=options.model_wait_s
        )
        self._upkeep = Upkeep(self._judges, self._turnstile)
        self._doors = {urgent: asyncio.Semaphore(options.queue_size + len(judges)) for urgent in (False, True)}
        self._held_back = 0
        self._memo, self._unfit, self._tally = VerdictMemo(_MEMORY), UnfitTasks(), Tally()
        self._pins = Pins()
        self._observer = observer or Observer()

    async def start(self) -> None:
        """Start the judges, once, without waiting for them."""
        self._upkeep.start()

    async def evaluate(self, job: Job, *, validate: bool = False, step: int | None = None) -> EvalResult:
        """Judge one candidate, or answer with the verdict on the same source for the same task in the same step.

        Raises:
            TaskError: the reference cannot serve.
            EnvironmentNotReady: no judge can work here.
        """
        self._upkeep.start()
        task, source, kernel = job
        pin = self._pins.of(task, step)
        pending = self._known(verdict_key(task, source, step, pin), validate)
        if pending is not None:
            result = await pending.wait()
        else:
            result = await self._admit(job, validate, step, pin)
        return result.model_copy(update={"task_id": task.task_id, "kernel": kernel})

    async def ready(self) -> None:
        """Return when all judges have started.

        Raises:
            EnvironmentNotReady: one of them cannot work.
        """
        await self._upkeep.ready()

    async def stats(self) -> PoolStats:
        """The pool at this moment."""
        return self._stats()

    async def forget(self) -> None:
        """Forget all verdicts."""
        self._memo.forget()

    async def drain(self, nodes: Collection[str], numbers: Collection[int], on: bool) -> list[int]:
        """Let judges finish and give them nothing new, or take that back.

        Args:
            nodes: ids of nodes whose judges are meant.
            numbers: judges meant.
            on: whether to drain.

        Returns:
            Numbers of the judges that this concerns now.
        """
        return self._upkeep.drain(nodes, numbers, on)

    async def close(self) -> None:
        """Stop looking after judges, and refuse requests."""
        self._upkeep.close()
        self._turnstile.refuse(InfraError("the pool has been closed"))

    def _stats(self) -> PoolStats:
        places = zip(self._judges, self._turnstile.states(), strict=True)
        judges = []
        for number, (judge, state) in enumerate(places):
            judges.append(JudgeStats(number=number, state=state, **judge.describe()._asdict()))
        return self._tally.stats(tuple(judges), self._turnstile.waiting, self._held_back)

    def _known(self, key: str, validate: bool) -> Pending | None:
        pending = self._memo.get(key)
        if pending is not None:
            self._tally.remembered += 1
            if validate:
                pending.ticket.urgent = True
        return pending

    async def _admit(self, job: Job, validate: bool, step: int | None, pin: Pin) -> EvalResult:
        self._held_back += 1
        try:
            await self._doors[validate].acquire()
        finally:
            self._held_back -= 1
        try:
            key = verdict_key(job[0], job[1], step, pin)
            pending = self._known(key, validate)  # somebody may have asked while this request waited
            if pending is None:
                ticket = Ticket(urgent=validate, pin=pin)
                pending = self._memo.put(key, Pending(lambda own: self._judge(job, own), ticket))
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
        tries = Tries()
        suspect: Handle | None = None
        failure: Exception = InfraError("no attempt was made")
        while tries.left:
            judge = await self._turnstile.enter(pending.ticket)
            pending.started = True
            waited = waited if tries.made else time.monotonic() - asked
            tries.made += 1
            self._tally.evaluations += 1
            try:
                result = await judge.evaluate(job)
            except InfraError as exc:
                failure, suspect = exc, judge
                tries.lost += isinstance(exc, JudgeLost)
                self._failed(judge, job, tries, exc)
                pending.ticket = pending.ticket.again(judge)
                continue
            except TaskError as exc:
                raise self._unfit.remember(job, exc) from None
            finally:
                self._turnstile.leave(judge)
            self._served(judge, suspect)
            return pending.ticket.pin.note(result).model_copy(update={"attempts": tries.made}), waited
        return not_judged(job, failure, tries.made), waited

    def _failed(self, judge: Handle, job: Job, tries: Tries, exc: Exception) -> None:
        then = "on to the next" if tries.left else "the candidate is not judged"
        number = self._judges.index(judge)
        _LOG.warning("judge %d failed on task %s (attempt %d, %s): %s", number, job[0].task_id, tries.made, then, exc)
        self._tally.retries += tries.left
        self._upkeep.repair(judge)
        if isinstance(exc, JudgeLost):
            self._upkeep.ask_neighbours(judge)

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


def not_judged(job: Job, failure: Exception, attempts: int) -> EvalResult:
    """The result of an evaluation whose every attempt failed for reasons of ours."""
    task, _, kernel = job
    error = EvalError(stage="pool", type=type(failure).__name__, message=str(failure)[:2000])
    status = EvalStatus.INFRA_ERROR
    return EvalResult(task_id=task.task_id, kernel=kernel, status=status, error=error, attempts=attempts)
