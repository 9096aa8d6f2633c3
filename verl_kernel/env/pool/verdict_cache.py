# SPDX-License-Identifier: Apache-2.0
"""Verdicts remembered by content: who asks again, or at the same time, gets the same evaluation.

The key is a hash of the reference, the source, the step and the GPU model. Within a step a source has one verdict;
another step draws other secrets, so that a lucky pass does not last. Without a step it is kept until the cache is full.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable

from verl_kernel.env.lru import LRUCache
from verl_kernel.env.pool.scheduling.scheduler import Pin, Ticket
from verl_kernel.env.pool.stats import Outcome
from verl_kernel.env.request import EvalRequest
from verl_kernel.env.result import EvalStatus


def verdict_key(request: EvalRequest, pin: Pin, is_apart: bool = False) -> str:
    """The key that equal requests share; the pin's serial stands for the GPU model, which may not be chosen yet.

    Args:
        request: the candidate.
        pin: of its task and step.
        is_apart: whether validation is judged otherwise than training, so that neither may have the other's verdict.
    """
    text = f"{request.task.fingerprint}\0{request.step}\0{pin.serial}\0{request.source}"
    if is_apart and request.validate:
        text = f"validation\0{text}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class SharedEvaluation:
    """One evaluation, queued, under way or done, and everybody who waits for it.

    Args:
        judge: does the work, given this object.
        ticket: its place in the queue.
    """

    def __init__(self, judge: Callable[[SharedEvaluation], Awaitable[Outcome]], ticket: Ticket) -> None:
        self.ticket = ticket
        self.started = False
        self._waiters = 0
        self._abandoned = False
        self._task = asyncio.ensure_future(judge(self))
        self._task.add_done_callback(_retrieve_exception)

    @property
    def useful(self) -> bool:
        """Whether it has a verdict or may still get one."""
        if self._abandoned or self._task.cancelled():
            return False
        if not self._task.done():
            return True
        return self._task.exception() is None and self._task.result().result.status is not EvalStatus.INFRA_ERROR

    @property
    def done(self) -> bool:
        """Whether it has ended, one way or another."""
        return self._task.done()

    async def wait(self) -> Outcome:
        """Wait for the verdict; an evaluation that has not started is cancelled with its last waiter."""
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
        """An evaluation worth waiting for, if there is one."""
        known = self._items.get(key)
        return known if known is not None and known.useful else None

    def put(self, key: str, pending: SharedEvaluation) -> SharedEvaluation:
        """Remember an evaluation."""
        return self._items.put(key, pending)

    def forget(self) -> None:
        """Let go of everything; who waits already still gets an answer."""
        self._items = LRUCache(self._capacity)


def _retrieve_exception(task: asyncio.Task[Outcome] | asyncio.Future[Outcome]) -> None:
    """Retrieve an error whose waiters were cancelled, or asyncio logs that it was never retrieved."""
    if not task.cancelled():
        task.exception()
