# SPDX-License-Identifier: Apache-2.0
"""An event loop on a thread of its own, for a dispatcher whose callers live in other loops or in none.

Ray gives every concurrency group of an actor its own loop, so a router needs this as much as a local pool does.
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


class LoopThread:
    """Runs coroutines until it is closed."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    @property
    def closed(self) -> bool:
        """Whether it runs no more."""
        return self._loop.is_closed()

    def submit(self, work: Coroutine[Any, Any, Answer]) -> Future[Answer]:
        """Start `work` there; cancelling the future cancels it.

        Raises:
            InfraError: the loop has been closed.
        """
        if self.closed:
            work.close()
            raise InfraError("the pool has been closed")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def run(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Wait in the caller's loop for what happens in this one; a cancelled caller cancels `work`."""
        return await asyncio.wrap_future(self.submit(work))

    def close(self) -> None:
        """Wait a little for what is left, cancel the rest and end the thread."""
        self.submit(_finish_tasks()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _finish_tasks() -> None:
    own = {asyncio.current_task()}
    if under_way := asyncio.all_tasks() - own:  # it fails by itself, with a reason
        await asyncio.wait(under_way, timeout=_GRACE_S)
    left = asyncio.all_tasks() - own
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
