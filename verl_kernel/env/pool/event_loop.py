# SPDX-License-Identifier: Apache-2.0
"""An event loop in its own thread, for a dispatcher whose callers run in other event loops or in none.

A local pool needs it, and so does a router: Ray runs each concurrency group of an actor in a separate event loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from verl_kernel.errors import InfraError

Answer = TypeVar("Answer")
_GRACE_S = 5.0
"""Time for running tasks to end before they are cancelled."""


class LoopThread:
    """A thread with an event loop that runs coroutines until it is closed."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    @property
    def closed(self) -> bool:
        """Whether the loop has stopped."""
        return self._loop.is_closed()

    def submit(self, work: Coroutine[Any, Any, Answer]) -> Future[Answer]:
        """Start `work` in the loop; cancelling the returned future cancels `work`.

        Raises:
            InfraError: the loop has been closed.
        """
        if self.closed:
            work.close()
            raise InfraError("the pool has been closed")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def run(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Run `work` in this loop and await it in the caller's; cancelling the caller cancels `work`."""
        return await asyncio.wrap_future(self.submit(work))

    def close(self) -> None:
        """Wait up to `_GRACE_S` seconds for running tasks, cancel the rest and end the thread."""
        self.submit(_finish_tasks()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _finish_tasks() -> None:
    own = {asyncio.current_task()}
    if under_way := asyncio.all_tasks() - own:  # closed judges make most of these fail with a better message
        await asyncio.wait(under_way, timeout=_GRACE_S)
    unfinished = asyncio.all_tasks() - own
    for task in unfinished:
        task.cancel()
    await asyncio.gather(*unfinished, return_exceptions=True)
