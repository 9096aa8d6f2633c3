# SPDX-License-Identifier: Apache-2.0
"""A pool of judge processes on this machine, without Ray; for the command line, tests and notebooks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING

from verl_kernel.env.options import GymOptions
from verl_kernel.env.pool.dispatcher import Dispatcher, Prefilter, prefilter_options
from verl_kernel.env.pool.event_loop import LoopThread
from verl_kernel.env.pool.judge_process import JudgeProcess, make_judge
from verl_kernel.env.pool.scheduling.judges import Placement
from verl_kernel.env.pool.stats import PoolStats
from verl_kernel.env.request import EvalRequest, Job
from verl_kernel.env.result import EvalResult
from verl_kernel.env.task import Task

if TYPE_CHECKING:
    from verl_kernel.env.pool.task_judges import TaskJudges


class LocalJudge:
    """A handle that makes a judge process's blocking calls in a thread of `executor`."""

    def __init__(self, process: JudgeProcess | TaskJudges, executor: ThreadPoolExecutor) -> None:
        self._process, self._executor = process, executor

    async def judge(self, request: EvalRequest) -> EvalResult:
        """Judge one candidate."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, self._process.judge, request)

    async def revive(self) -> None:
        """Start the process unless it is running."""
        await asyncio.get_running_loop().run_in_executor(self._executor, self._process.start)

    def describe(self) -> Placement:
        """Return process and GPU model; the node stays empty."""
        return Placement(pid=self._process.pid, model=self._process.model)


class LocalPool:
    """A pool of `options.num_judges` judge processes on this machine; the constructor waits until all have started.

    Args:
        options: how to judge, and with how many judges.
        seed: makes verdicts reproducible.

    Raises:
        EnvironmentNotReady: the device or a mechanism of isolation is missing.
        ConfigError: the device does not support the options.
    """

    def __init__(self, options: GymOptions, seed: int | None = None) -> None:
        self._processes: list[JudgeProcess | TaskJudges] = []
        workers = options.prefilter_judges if options.prefilter != "off" else 0
        self._executor = ThreadPoolExecutor(options.num_judges + workers, thread_name_prefix="judge")
        prefilter = None
        if options.prefilter != "off":
            prefilter = Prefilter(self._judges(prefilter_options(options), seed), options)
        self._dispatcher = Dispatcher(self._judges(options, seed), options, prefilter=prefilter)
        self._loop = LoopThread("pool")
        try:
            self._loop.submit(self._dispatcher.ready()).result()
        except BaseException:  # an interrupt too must not leave judges behind
            self.close()
            raise

    def _judges(self, options: GymOptions, seed: int | None) -> list[LocalJudge]:
        processes = [make_judge(options, seed) for _ in range(options.num_judges)]
        self._processes += processes
        return [LocalJudge(process, self._executor) for process in processes]

    async def evaluate(
        self, task: Task, source: str, *, kernel: str = "", validate: bool = False, step: int | None = None
    ) -> EvalResult:
        """Judge one candidate; arguments as in `KernelGym.evaluate`.

        Raises:
            TaskError: the reference is unusable.
        """
        return await self._loop.run(self._dispatcher.judge(EvalRequest(task, source, kernel, validate, step)))

    def evaluate_many(self, jobs: Sequence[Job]) -> list[EvalResult]:
        """Judge candidates on all judges in parallel; return results in the order of `jobs`."""
        futures = [self._loop.submit(self._dispatcher.judge(EvalRequest(*job))) for job in jobs]
        return [future.result() for future in futures]

    def stats(self) -> PoolStats:
        """Return the current judges, queue and counts."""
        return self._loop.submit(self._dispatcher.stats()).result()

    def pids(self) -> list[int]:
        """Return the process ids of the running judges."""
        return [process.pid for process in self._processes if process.pid is not None]

    def forget(self) -> None:
        """Forget all verdicts."""
        self._loop.submit(self._dispatcher.forget()).result()

    def close(self) -> None:
        """End all judges; unfinished evaluations raise InfraError."""
        if self._loop.closed:
            return
        self._loop.submit(self._dispatcher.close())
        for process in self._processes:
            process.close()
        self._loop.close()
        self._executor.shutdown(cancel_futures=True)

    def __enter__(self) -> LocalPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
