# SPDX-License-Identifier: Apache-2.0
"""Accepts evaluations, hands them to a pool and keeps what becomes of them; one event loop calls all methods."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import ceil
from typing import Protocol

from verl_kernel.client.gym import Gym
from verl_kernel.client.messages import Evaluation, Problem, evaluation_id
from verl_kernel.env.pool.stats import PoolStats
from verl_kernel.env.request import EvalRequest
from verl_kernel.env.result import EvalResult, EvalStatus
from verl_kernel.errors import InfraError, StorageError, VerlKernelError
from verl_kernel.service.record import Ending, ServiceRecord

_LOG = logging.getLogger(__name__)
_MOST_STARTS = 3
"""Services that may be killed while an evaluation waits or is judged; it may be what kills them."""
_AGAIN_S = 5.0
"""Seconds after which an ending that could not be recorded is tried again."""
_LONGEST_RETRY_S = 60
"""Largest `Retry-After` in seconds, which is also the answer where the pace is unknown."""


class JudgePool(Gym, Protocol):
    """What judges, with its state: `LocalPool` or `KernelGym`."""

    def stats(self) -> PoolStats:
        """Return the current judges, queue and counts."""
        ...


class ServiceRefusal(Exception):
    """A request that is not accepted now.

    Args:
        status: of HTTP.
        sentence: why, and what to do.
        retry_s: seconds after which it may be accepted.
    """

    def __init__(self, status: int, sentence: str, retry_s: int) -> None:
        super().__init__(sentence)
        self.status, self.retry_s = status, retry_s


@dataclass(eq=False)
class _Work:
    """An evaluation that has not ended, or whose ending is not recorded yet."""

    request: EvalRequest
    callers: int = 1
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    ending: Ending | None = None
    task: asyncio.Task[None] | None = None


class EvaluationQueue:
    """The evaluations of a service.

    Args:
        pool: judges them.
        record: where they are kept.
        most_waiting: evaluations of a namespace that may be unfinished.
    """

    def __init__(self, pool: JudgePool, record: ServiceRecord, most_waiting: int) -> None:
        self._pool, self._record, self._limit = pool, record, most_waiting
        self._work: dict[tuple[str, str], _Work] = {}
        self._unfinished: Counter[str] = Counter()
        self.is_draining = False
        self.refused, self.ended = 0, Counter[str]()
        self._closing = asyncio.Event()

    @property
    def waiting(self) -> int:
        """Evaluations that have not ended."""
        return self._unfinished.total()

    async def resume(self) -> int:
        """Begin what an earlier service on this folder accepted and did not finish; return how many those are."""
        unfinished = await asyncio.to_thread(self._record.unfinished)
        for request, starts in unfinished:
            if starts < _MOST_STARTS:
                self._begin(request)
                continue
            lost = Problem(
                type="InfraError", message=f"the service was killed {starts} times while it waited or was judged"
            )
            work = self._work[request.task.namespace, evaluation_id(request)] = _Work(request)
            work.task = asyncio.create_task(self._record_ending(work, Ending("lost", lost.model_dump_json())))
        return len(unfinished)

    async def submit(self, requests: Sequence[EvalRequest], wait_s: float) -> list[Evaluation]:
        """Accept evaluations, all or none, and wait up to `wait_s` seconds for their ends.

        Raises:
            Refusal: the namespace has too many unfinished ones, or the service is about to end.
            StorageError: they cannot be recorded.
        """
        by_id = {evaluation_id(request): request for request in requests}
        new = [request for name, request in by_id.items() if not await self._is_known(request.task.namespace, name)]
        await self._admit(new)
        if new:
            await asyncio.to_thread(self._record.accept, new)
        for request in new:
            self._begin(request)
        end = time.monotonic() + wait_s
        namespace = requests[0].task.namespace
        return [await self.find(namespace, evaluation_id(request), end - time.monotonic()) for request in requests]

    async def find(self, namespace: str, name: str, wait_s: float) -> Evaluation:
        """Return an evaluation as it is at its end, or after `wait_s` seconds if it has not ended then.

        Raises:
            KeyError: the namespace has none of this id.
        """
        work = self._work.get((namespace, name))
        if work is not None and work.ending is None and wait_s > 0:
            await self._wait_for_first(work.ended, self._closing, timeout=wait_s)
        ending: Ending | None
        if work is not None:
            ending = work.ending or Ending("waiting", "")
        else:
            ending = await asyncio.to_thread(self._record.ending, namespace, name)
        if ending is None:
            raise KeyError(name)
        return _as_message(name, ending)

    async def cancel(self, namespace: str, name: str) -> Evaluation:
        """Note that a caller no longer wants an evaluation; without callers, one that has not started never does.

        Raises:
            KeyError: the namespace has none of this id.
        """
        work = self._work.get((namespace, name))
        if work is not None and work.task is not None and work.ending is None:
            work.callers -= 1
            if not work.callers:
                work.task.cancel()
                await asyncio.wait([work.task])
        return await self.find(namespace, name, 0.0)

    def begin_to_end(self) -> None:
        """Accept nothing more; what was accepted goes on, and its results can be fetched."""
        self.is_draining = True

    def stop_waiting(self) -> None:
        """Answer those at once that wait for a result, and accept nothing more."""
        self.is_draining = True
        self._closing.set()

    async def close(self, grace_s: float) -> None:
        """Give unfinished evaluations `grace_s` seconds, and leave the others for the next service."""
        self.stop_waiting()
        tasks = [work.task for work in self._work.values() if work.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=grace_s)
        for work in self._work.values():
            work.callers = 1  # it stays recorded as waiting
            if work.task is not None:
                work.task.cancel()
        await asyncio.gather(*(task for task in tasks if not task.done()), return_exceptions=True)
        with suppress(StorageError):  # then this end counts like a kill
            await asyncio.to_thread(self._record.forget_starts)

    def _retry_s(self) -> int:
        """Return after how many seconds about half of what waits has ended, by the pace of the last minute."""
        pace = self._pool.stats().recent_per_second
        return max(1, min(_LONGEST_RETRY_S, ceil(self.waiting / 2 / pace) if pace else _LONGEST_RETRY_S))

    async def _is_known(self, namespace: str, name: str) -> bool:
        """Tell whether an evaluation waits or has an end that a repetition would not change; count its caller."""
        if (work := self._work.get((namespace, name))) is not None and (work.ending is None or _is_final(work.ending)):
            work.callers += 1
            return True
        ending = await asyncio.to_thread(self._record.ending, namespace, name)
        return ending is not None and ending.state != "waiting" and _is_final(ending)

    async def _admit(self, new: Sequence[EvalRequest]) -> None:
        if self.is_draining:
            self.refused += len(new)
            raise ServiceRefusal(
                503, "the service accepts nothing new, as it is about to end: ask again when it is back", 5
            )
        counts = Counter(request.task.namespace for request in new)
        if any(self._unfinished[namespace] + count > self._limit for namespace, count in counts.items()):
            self.refused += len(new)
            sentence = f"no more than {self._limit} evaluations of a namespace may be unfinished: ask again later"
            raise ServiceRefusal(429, sentence, await asyncio.to_thread(self._retry_s))

    def _begin(self, request: EvalRequest) -> None:
        key = request.task.namespace, evaluation_id(request)
        if key in self._work and self._work[key].ending is None:  # another request began it while this one was recorded
            self._work[key].callers += 1
            return
        work = self._work[key] = _Work(request)
        self._unfinished[key[0]] += 1
        work.task = asyncio.create_task(self._judge(work))

    async def _judge(self, work: _Work) -> None:
        request = work.request
        try:
            result = await self._pool.evaluate(
                request.task, request.source, kernel=request.kernel, validate=request.validate, step=request.step
            )
            ending = Ending("done", result.model_dump_json())
        except asyncio.CancelledError:
            if work.callers:  # the service ends: the next one judges it
                self._unfinished[request.task.namespace] -= 1
                raise
            ending = Ending(
                "cancelled", Problem(type="CancelledError", message="no client waits for it").model_dump_json()
            )
        except VerlKernelError as exc:
            if self.is_draining and isinstance(exc, InfraError):  # the pool was closed
                self._unfinished[request.task.namespace] -= 1
                return
            ending = Ending("failed", Problem(type=type(exc).__name__, message=str(exc)).model_dump_json())
        except Exception:  # noqa: BLE001  a fault of ours must end this evaluation, not the service
            _LOG.exception("evaluation %s of %r failed", evaluation_id(request), request.task.namespace)
            problem = Problem(type="InfraError", message="the service failed at it; its log says where")
            ending = Ending("failed", problem.model_dump_json())
        self._unfinished[request.task.namespace] -= 1
        await self._record_ending(work, ending)

    async def _record_ending(self, work: _Work, ending: Ending) -> None:
        """Record an ending; while that is impossible it stays in memory, from where it is served."""
        namespace, name = work.request.task.namespace, evaluation_id(work.request)
        work.ending = ending
        work.ended.set()
        self.ended[ending.state] += 1
        warned = False
        while True:
            try:
                await asyncio.to_thread(self._record.end, namespace, name, ending)
                break
            except StorageError as exc:
                if not warned:
                    _LOG.error("an ending stays in memory until it can be recorded: %s", exc)
                warned = True
                await self._wait_for_first(self._closing, timeout=_AGAIN_S)
                if self._closing.is_set():
                    return
        if self._work.get((namespace, name)) is work:
            del self._work[namespace, name]

    @staticmethod
    async def _wait_for_first(*events: asyncio.Event, timeout: float) -> None:
        """Wait until one of several events is set, or for `timeout` seconds."""
        waits = [asyncio.ensure_future(event.wait()) for event in events]
        try:
            await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()


def _is_final(ending: Ending) -> bool:
    """Whether equal requests get this ending too; a failure of ours is judged again, as it may not recur."""
    if ending.state == "done":
        return EvalResult.model_validate_json(ending.answer).status is not EvalStatus.INFRA_ERROR
    return ending.state == "failed" and json.loads(ending.answer)["type"] in ("TaskError", "ConfigError")


def _as_message(name: str, ending: Ending) -> Evaluation:
    if ending.state == "waiting":
        return Evaluation(id=name, state="waiting")
    read = json.loads(ending.answer)
    if ending.state == "done":
        return Evaluation(id=name, state="done", result=read)
    return Evaluation(id=name, state=ending.state, problem=Problem(**read))
