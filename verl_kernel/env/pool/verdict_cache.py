# SPDX-License-Identifier: Apache-2.0
"""The verdict cache: equal requests, repeated or concurrent, share one evaluation.

The key is a hash of the reference, the source and the step. Within a step a source has one verdict. In a later step it
is judged again with different random inputs, so that a candidate that passed by luck is found out.
Without a step the verdict stays until the cache is full.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable

from verl_kernel.env.lru import LRUCache
from verl_kernel.env.pool.scheduling.scheduler import Ticket
from verl_kernel.env.pool.stats import PoolOutcome
from verl_kernel.env.request import EvalRequest
from verl_kernel.env.result import EvalStatus


def verdict_key(request: EvalRequest, is_apart: bool = False) -> str:
    """Return the key that equal requests share.

    Args:
        request: the candidate and its task.
        is_apart: whether validation and training are judged by different rules, so that they must not share verdicts.
    """
    text = f"{request.task.cache_key}\0{request.step}\0{request.source}"
    if is_apart and request.validate:
        text = f"validation\0{text}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class SharedEvaluation:
    """An evaluation (queued, running or done) together with the number of callers that wait for it.

    Args:
        judge: makes the verdict; it is called with this object.
        ticket: the evaluation's place in the queue.
    """

    def __init__(self, judge: Callable[[SharedEvaluation], Awaitable[PoolOutcome]], ticket: Ticket) -> None:
        self.ticket = ticket
        self.started = False
        self._waiters = 0
        self._abandoned = False
        self._task = asyncio.ensure_future(judge(self))
        self._task.add_done_callback(_retrieve_exception)

    @property
    def useful(self) -> bool:
        """Whether it has a verdict other than `infra_error`, or may still get one."""
        if self._abandoned or self._task.cancelled():
            return False
        if not self._task.done():
            return True
        return self._task.exception() is None and self._task.result().result.status is not EvalStatus.INFRA_ERROR

    @property
    def done(self) -> bool:
        """Whether it has ended, by a verdict, an exception or a cancellation."""
        return self._task.done()

    async def wait(self) -> PoolOutcome:
        """Wait for the verdict; when the last caller is cancelled, an evaluation that has not started is too."""
        self._waiters += 1
        try:
            return await asyncio.shield(self._task)
        finally:
            self._waiters -= 1
            if not self._waiters and not self.started and not self._task.done():
                self._abandoned = True
                self._task.cancel()


class VerdictCache:
    """The `capacity` most recently used evaluations by key."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._items: LRUCache[SharedEvaluation] = LRUCache(capacity)

    def get(self, key: str) -> SharedEvaluation | None:
        """Return the evaluation with this key if it is useful, else None."""
        pending = self._items.get(key)
        return pending if pending is not None and pending.useful else None

    def put(self, key: str, pending: SharedEvaluation) -> SharedEvaluation:
        """Store and return an evaluation."""
        return self._items.put(key, pending)

    def forget(self) -> None:
        """Empty the cache; callers that already wait still get their answer."""
        self._items = LRUCache(self._capacity)


def _retrieve_exception(task: asyncio.Task[PoolOutcome] | asyncio.Future[PoolOutcome]) -> None:
    """Retrieve the task's exception: if all callers were cancelled, asyncio would log that it was never retrieved."""
    if not task.cancelled():
        task.exception()
