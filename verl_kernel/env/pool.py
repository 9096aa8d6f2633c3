# SPDX-License-Identifier: Apache-2.0
"""Many judges behind one interface: `LocalPool` on this machine, `KernelGym` on a Ray cluster.

Both retry an evaluation that failed for reasons of ours once, on another judge if there is one, and then return
`infra_error`; both raise TaskError for a reference that cannot serve. A deadline starts when a judge takes the job.
"""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import logging
import queue
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any

from verl_kernel.env.cache import Recent
from verl_kernel.env.judge_process import JudgeProcess
from verl_kernel.env.options import GymOptions
from verl_kernel.env.result import EvalError, EvalResult, EvalStatus
from verl_kernel.env.task import Task
from verl_kernel.errors import InfraError, TaskError, VerlKernelError

_LOG = logging.getLogger(__name__)
Job = tuple[Task, str, str]
ATTEMPTS = 2
_MEMORY = 4096
_CONTROL = 16


class LocalPool:
    """`options.num_judges` judges in processes of this machine, started here and now.

    Args:
        options: how to judge, and with how many judges.
        seed: makes verdicts reproducible.

    Raises:
        EnvironmentNotReady: the device or a mechanism of isolation is missing.
    """

    def __init__(self, options: GymOptions, seed: int | None = None) -> None:
        self._executor = ThreadPoolExecutor(options.num_judges, thread_name_prefix="judge")
        self._judges = [JudgeProcess(options, seed) for _ in range(options.num_judges)]
        self._free: queue.Queue[JudgeProcess] = queue.Queue()
        self._unfit = UnfitTasks()
        for judge in self._judges:
            self._free.put(judge)
        try:
            list(self._executor.map(JudgeProcess.start, self._judges))
        except VerlKernelError:
            self.close()
            raise

    async def evaluate(self, task: Task, source: str, *, kernel: str = "", validate: bool = False) -> EvalResult:
        """Judge one candidate; `validate` has no meaning here (first come, first served)."""
        future = self._executor.submit(self._evaluate, (task, source, kernel), time.monotonic())
        return await asyncio.wrap_future(future)

    def evaluate_many(self, jobs: Sequence[Job]) -> list[EvalResult]:
        """Judge candidates, as many at a time as there are judges; results in the order of `jobs`."""
        asked = time.monotonic()
        return list(self._executor.map(lambda job: self._evaluate(job, asked), jobs))

    def close(self) -> None:
        """End all judges; evaluations under way fail."""
        for judge in self._judges:
            judge.close()
        self._executor.shutdown(cancel_futures=True)

    def __enter__(self) -> LocalPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _evaluate(self, job: Job, asked: float) -> EvalResult:
        waited = time.monotonic() - asked
        self._unfit.check(job)
        for attempt in range(1, ATTEMPTS + 1):
            judge = self._free.get()
            try:
                result = judge.evaluate(*job)
                return result.model_copy(update={"attempts": attempt, "queue_seconds": waited})
            except InfraError as exc:
                failure = exc
            except TaskError as exc:
                raise self._unfit.remember(job, exc) from None
            finally:
                self._free.put(judge)
        return not_judged(job, failure)


class JudgeActor:
    """One judge as a Ray actor; the judge itself is a process of its own beneath it."""

    def __init__(self, options: GymOptions, seed: int | None) -> None:
        self._judge = JudgeProcess(options, seed)
        self._judge.start()

    def evaluate(self, job: Job) -> EvalResult:
        """Judge one candidate."""
        return self._judge.evaluate(*job)

    def pids(self) -> list[int]:
        """Process ids of the judge."""
        return [self._judge.pid] if self._judge.pid is not None else []


class Router:
    """The pool's one entrance: bounded, with priorities, a memory of verdicts, and a second try elsewhere."""

    def __init__(self, options: GymOptions, seed: int | None) -> None:
        import ray

        make = ray.remote(JudgeActor).options(
            num_cpus=options.cpus_per_judge, num_gpus=options.gpus_per_judge, max_restarts=-1, max_task_retries=0
        )
        self._judges = [make.remote(options, seed) for _ in range(options.num_judges)]
        self._turnstile = Turnstile(self._judges)
        self._unfit = UnfitTasks()
        self._verdicts: Recent[asyncio.Task[EvalResult]] = Recent(_MEMORY)
        self._counts = {"evaluations": 0, "remembered": 0, "retries": 0, "infra_errors": 0}
        self._deadline = 2 * options.reference_timeout_s + options.load_timeout_s + options.run_timeout_s + 60

    async def evaluate(self, job: Job, validate: bool) -> EvalResult:
        """Judge one candidate, or answer with the verdict on the same source for the same task."""
        task, source, kernel = job
        text = f"{task.fingerprint}\0{source}".encode("utf-8", "surrogatepass")
        key = hashlib.sha256(text).hexdigest()
        known = self._verdicts.get(key)
        if known is None or _failed(known):
            known = self._verdicts.put(key, asyncio.ensure_future(self._judge(job, validate)))
        else:
            self._counts["remembered"] += 1
        result = await asyncio.shield(known)
        return result.model_copy(update={"task_id": task.task_id, "kernel": kernel})

    async def stats(self) -> dict[str, int]:
        """Judges, those at work, requests waiting, and counts since the start."""
        waiting, busy = self._turnstile.waiting, len(self._judges) - self._turnstile.free
        return {"judges": len(self._judges), "busy": busy, "queue": waiting, **self._counts}

    async def ready(self) -> list[int]:
        """Process ids of the judges, once all of them have started."""
        pids = await asyncio.gather(*(judge.pids.remote() for judge in self._judges))
        return [pid for some in pids for pid in some]

    async def _judge(self, job: Job, validate: bool) -> EvalResult:
        import ray

        self._unfit.check(job)
        asked = time.monotonic()
        waited = None
        for attempt in range(1, ATTEMPTS + 1):
            judge = await self._turnstile.enter(urgent=validate or attempt > 1)
            waited = time.monotonic() - asked if waited is None else waited
            self._counts["evaluations"] += 1
            try:
                result: EvalResult = await asyncio.wait_for(judge.evaluate.remote(job), self._deadline)
                return result.model_copy(update={"attempts": attempt, "queue_seconds": waited})
            except (InfraError, ray.exceptions.RayActorError, TimeoutError, asyncio.TimeoutError) as exc:
                failure: Exception = exc
                self._counts["retries"] += attempt < ATTEMPTS
            except TaskError as exc:
                raise self._unfit.remember(job, exc) from None
            finally:
                self._turnstile.leave(judge)
        self._counts["infra_errors"] += 1
        return not_judged(job, failure)


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
        reason = str(getattr(failure, "cause", failure))
        self._reasons[job[0].fingerprint] = reason
        return TaskError(reason)


class Turnstile:
    """Hands free judges to waiting requests: urgent ones first, then in the order of arrival."""

    def __init__(self, judges: Sequence[Any]) -> None:
        self._free = list(judges)
        self._waiting: list[tuple[bool, int, asyncio.Future[Any]]] = []
        self._arrivals = 0

    @property
    def free(self) -> int:
        """Judges without work."""
        return len(self._free)

    @property
    def waiting(self) -> int:
        """Requests without a judge."""
        return sum(not future.cancelled() for _, _, future in self._waiting)

    async def enter(self, urgent: bool) -> Any:
        """Wait for a judge."""
        if self._free:
            return self._free.pop(0)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._arrivals += 1
        heapq.heappush(self._waiting, (not urgent, self._arrivals, future))
        return await future

    def leave(self, judge: Any) -> None:
        """Give a judge back."""
        while self._waiting:
            future = heapq.heappop(self._waiting)[2]
            if not future.done():
                future.set_result(judge)
                return
        self._free.append(judge)


class KernelGym:
    """A Ray cluster's shared pool; a light handle that can be pickled and sent anywhere in the job.

    The pool belongs to the job that made it and ends with it.
    """

    def __init__(self, options: GymOptions, name: str, seed: int | None = None) -> None:
        self._options, self._name, self._seed = options, name, seed
        self._router = self._find()

    @classmethod
    def connect(cls, options: GymOptions, name: str = "kernelgym", seed: int | None = None) -> KernelGym:
        """The pool called `name`, made from `options` if there is none yet.

        Raises:
            EnvironmentNotReady: a judge cannot work on its node.
        """
        return cls(options, name, seed)

    def __reduce__(self) -> tuple[Callable[..., KernelGym], tuple[Any, ...]]:
        return KernelGym, (self._options, self._name, self._seed)

    async def evaluate(self, task: Task, source: str, *, kernel: str = "", validate: bool = False) -> EvalResult:
        """Judge one candidate; validation goes before training. Waits where the queue is full."""
        import ray

        for attempt in range(1, ATTEMPTS + 1):
            try:
                result: EvalResult = await self._router.evaluate.remote((task, source, kernel), validate)
                return result
            except ray.exceptions.RayTaskError as exc:
                raise _cause(exc) from None
            except ray.exceptions.RayActorError as exc:
                _LOG.warning("the pool %s is gone (attempt %d): %s", self._name, attempt, exc)
                self._router, failure = self._find(), exc
        return not_judged((task, source, kernel), failure)

    def evaluate_many(self, jobs: Sequence[Job]) -> list[EvalResult]:
        """Judge candidates; results in the order of `jobs`. Not for use inside a running event loop."""

        async def all_of_them() -> list[EvalResult]:
            calls = (self.evaluate(task, source, kernel=kernel) for task, source, kernel in jobs)
            return await asyncio.gather(*calls)

        return asyncio.run(all_of_them())

    def stats(self) -> dict[str, int]:
        """Judges, those at work, requests waiting, and counts since the start."""
        import ray

        counts: dict[str, int] = ray.get(self._router.stats.remote())
        return counts

    def ready(self) -> list[int]:
        """Wait until all judges have started; their process ids."""
        import ray

        pids: list[int] = ray.get(self._router.ready.remote())
        return pids

    def close(self) -> None:
        """End the pool for everybody."""
        import ray

        ray.kill(self._router)

    def __enter__(self) -> KernelGym:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _find(self) -> Any:
        import ray

        make = ray.remote(Router).options(
            name=self._name, get_if_exists=True, num_cpus=0, max_concurrency=self._options.queue_size + _CONTROL
        )
        return make.remote(self._options, self._seed)


def _cause(exc: Any) -> Exception:
    """The exception a remote method raised, without the trace of how it travelled."""
    cause: Exception = exc.cause if isinstance(exc.cause, VerlKernelError) else InfraError(str(exc.cause or exc)[:2000])
    return cause


def not_judged(job: Job, failure: Exception) -> EvalResult:
    """The result of an evaluation that failed for reasons of ours, twice."""
    task, kernel = job[0], job[2]
    error = EvalError(stage="pool", type=type(failure).__name__, message=str(failure)[:2000])
    status = EvalStatus.INFRA_ERROR
    return EvalResult(task_id=task.task_id, kernel=kernel, status=status, error=error, attempts=ATTEMPTS)


def _failed(task: asyncio.Task[EvalResult]) -> bool:
    """Whether a remembered evaluation ended without a verdict worth keeping."""
    if not task.done():
        return False
    return task.cancelled() or task.exception() is not None or task.result().status is EvalStatus.INFRA_ERROR
