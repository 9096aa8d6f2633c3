# SPDX-License-Identifier: Apache-2.0
"""A pool of judge processes on this machine, without Ray; for the command line, tests and notebooks."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, TypeVar

from verl_kernel.env.dispatcher import Dispatcher, Job
from verl_kernel.env.judge_process import JudgeProcess
from verl_kernel.env.options import GymOptions
from verl_kernel.env.pool_stats import PoolStats
from verl_kernel.env.result import EvalResult
from verl_kernel.env.task import Task
from verl_kernel.errors import InfraError

_LOG = logging.getLogger(__name__)
Answer = TypeVar("Answer")


class LocalJudge:
    """A judge process whose blocking calls are made on a thread of `executor`."""

    def __init__(self, process: JudgeProcess, executor: ThreadPoolExecutor) -> None:
        self._process, self._executor = process, executor

    async def evaluate(self, job: Job) -> EvalResult:
        """Judge one candidate."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, self._process.evaluate, *job)

    async def revive(self) -> None:
        """Start the process unless it is running."""
        await asyncio.get_running_loop().run_in_executor(self._executor, self._process.start)

    def describe(self) -> tuple[str, int | None]:
        """No node, and the process id."""
        return "", self._process.pid


class LocalPool:
    """`options.num_judges` judges in processes of this machine, started here and now.

    Args:
        options: how to judge, and with how many judges.
        seed: makes verdicts reproducible.

    Raises:
        EnvironmentNotReady: the device or a mechanism of isolation is missing.
        ConfigError: the device does not serve the options.
    """

    def __init__(self, options: GymOptions, seed: int | None = None) -> None:
        self._executor = ThreadPoolExecutor(options.num_judges, thread_name_prefix="judge")
        self._processes = [JudgeProcess(options, seed) for _ in range(options.num_judges)]
        self._dispatcher = Dispatcher([LocalJudge(process, self._executor) for process in self._processes], options)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="pool", daemon=True)
        self._thread.start()
        try:
            self._call(self._dispatcher.ready()).result()
        except BaseException:  # an interrupt too must not leave judges behind
            self.close()
            raise

    async def evaluate(
        self, task: Task, source: str, *, kernel: str = "", validate: bool = False, step: int | None = None
    ) -> EvalResult:
        """Judge one candidate; `validate` goes before others, `step` bounds how long a verdict is remembered.

        Raises:
            TaskError: the reference cannot serve.
        """
        job = (task, source, kernel)
        return await asyncio.wrap_future(self._call(self._dispatcher.evaluate(job, validate=validate, step=step)))

    def evaluate_many(self, jobs: Sequence[Job]) -> list[EvalResult]:
        """Judge candidates, as many at a time as there are judges; results in the order of `jobs`."""
        futures = [self._call(self._dispatcher.evaluate(job)) for job in jobs]
        return [future.result() for future in futures]

    def stats(self) -> PoolStats:
        """Judges, queue and counts at this moment."""

        async def ask() -> PoolStats:
            return self._dispatcher.stats()

        return self._call(ask()).result()

    def pids(self) -> list[int]:
        """Process ids of the judges that are running."""
        return [process.pid for process in self._processes if process.pid is not None]

    def forget(self) -> None:
        """Forget all verdicts."""
        self._loop.call_soon_threadsafe(self._dispatcher.forget)

    def close(self) -> None:
        """End all judges; evaluations under way fail."""
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._dispatcher.close)
        for process in self._processes:
            process.close()
        self._executor.shutdown(cancel_futures=True)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(_settle())
        self._loop.close()

    def __enter__(self) -> LocalPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _call(self, work: Coroutine[Any, Any, Answer]) -> Future[Answer]:
        if self._loop.is_closed():
            work.close()
            raise InfraError("the pool has been closed")
        return asyncio.run_coroutine_threadsafe(work, self._loop)


async def _settle() -> None:
    """Let what still waits in this loop learn that the pool is closed."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
