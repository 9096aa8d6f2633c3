# SPDX-License-Identifier: Apache-2.0
"""The client of a Ray cluster's shared pool, for agent loops and reward workers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from verl_kernel.env.options import GymOptions
from verl_kernel.env.pool.scheduling.judges import ATTEMPTS
from verl_kernel.env.pool.stats import PoolStats, not_judged
from verl_kernel.env.request import EvalRequest, Job
from verl_kernel.env.result import EvalResult
from verl_kernel.env.task import Task
from verl_kernel.errors import InfraError

_LOG = logging.getLogger(__name__)
_RETURN_S = 120.0
"""Longest wait for a restarted router, in seconds."""
_PAUSE_S = 0.5
"""Seconds between two tries to reach it."""


class KernelGym:
    """A small handle on the pool that can be pickled and sent to any process of the Ray job.

    The process that made the pool owns it, and the pool ends with that process; other handles then find or make a
    new one. If the pool's processes die, Ray restarts them, and unfinished evaluations are repeated once.
    """

    def __init__(self, options: GymOptions, name: str, seed: int | None = None) -> None:
        self._options, self._name, self._seed = options, name, seed
        self._router = self._find()

    @classmethod
    def connect(cls, options: GymOptions, name: str = "kernelgym", seed: int | None = None) -> KernelGym:
        """Return a handle on the pool called `name`; make the pool from `options` if it does not exist.

        Raises:
            ConfigError: the pool exists and has other options, or `seed` is given and differs from the pool's seed.
        """
        gym = cls(options, name, seed)
        gym._check_options()
        return gym

    def __reduce__(self) -> tuple[Callable[..., KernelGym], tuple[Any, ...]]:
        return KernelGym, (self._options, self._name, self._seed)

    async def evaluate(
        self, task: Task, source: str, *, kernel: str = "", validate: bool = False, step: int | None = None
    ) -> EvalResult:
        """Judge one candidate; wait while the queue is full.

        Args:
            task: what the candidate must compute.
            source: the candidate's source text.
            kernel: the caller's name for the candidate.
            validate: serve this request before training requests.
            step: training step; within a step, the same source gets the remembered verdict.

        Raises:
            TaskError: the reference is unusable.
            EnvironmentNotReady: no judge of the pool can start.
        """
        from ray.exceptions import ActorUnschedulableError, RayActorError

        from verl_kernel.env.pool.cluster.router import TRAINING, VALIDATION

        request = EvalRequest(task, source, kernel, validate, step)
        failure: Exception = InfraError("no attempt was made")
        for attempt in range(ATTEMPTS):
            try:
                group = VALIDATION if validate else TRAINING
                return await _await_answer(self._router.judge.options(concurrency_group=group).remote(request, attempt))
            except (RayActorError, ActorUnschedulableError) as exc:  # the latter: the router's node is gone
                failure = exc
                _LOG.warning("the pool %s is gone (attempt %d of %d): %s", self._name, attempt + 1, ATTEMPTS, exc)
                await self._reconnect()
        return not_judged(request, failure, ATTEMPTS)

    def evaluate_many(self, jobs: Sequence[Job]) -> list[EvalResult]:
        """Judge candidates and return results in the order of `jobs`. Do not call it inside a running event loop."""

        async def all_of_them() -> list[EvalResult]:
            calls = (self.evaluate(task, source, kernel=kernel) for task, source, kernel in jobs)
            return await asyncio.gather(*calls)

        return asyncio.run(all_of_them())

    def stats(self) -> PoolStats:
        """Return the current judges, queue and counts."""
        stats: PoolStats = self._control("stats")
        return stats

    def ready(self) -> list[int]:
        """Wait until all judges have started and return their process ids.

        Raises:
            EnvironmentNotReady: a judge cannot run on its node.
        """
        pids: list[int] = self._control("ready")
        return pids

    def one_ready(self) -> None:
        """Wait until one judge has started.

        Raises:
            EnvironmentNotReady: none can run on its node.
            InfraError: none starts.
        """
        self._control("one_ready")

    def forget(self) -> None:
        """Forget all verdicts."""
        self._control("forget")

    def drain(self, node: str | None = None, *, judge: int | None = None) -> list[int]:
        """Stop giving work to judges, before maintenance; they finish what they have begun.

        Args:
            node: id (or its beginning), address or host name of a node; drains all judges on it.
            judge: number of a single judge.

        Returns:
            Numbers of the judges affected now; they have finished once `stats` reports them as `drained`.

        Raises:
            ConfigError: there is no such node or judge.
        """
        numbers: list[int] = self._control("drain", node, judge, True)
        return numbers

    def undrain(self, node: str | None = None, *, judge: int | None = None) -> list[int]:
        """Undo `drain`."""
        numbers: list[int] = self._control("drain", node, judge, False)
        return numbers

    def close(self) -> None:
        """End the pool for all its callers."""
        import ray

        ray.kill(self._router)

    def __enter__(self) -> KernelGym:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _control(self, method: str, *args: Any) -> Any:
        import ray

        from verl_kernel.env.pool.cluster.judge import cause_of
        from verl_kernel.env.pool.cluster.router import CONTROL

        try:
            return ray.get(getattr(self._router, method).options(concurrency_group=CONTROL).remote(*args))
        except ray.exceptions.RayTaskError as exc:
            raise cause_of(exc) from None

    def _check_options(self) -> None:
        """Raise ConfigError if the pool was made from other options.

        A pool that is gone passes: the next evaluation makes a new one from these options.
        """
        from ray.exceptions import ActorUnschedulableError, RayActorError, RayTaskError

        from verl_kernel.env.pool.cluster.judge import cause_of
        from verl_kernel.env.pool.cluster.router import CONTROL

        check = self._router.check_options.options(concurrency_group=CONTROL).remote(self._options, self._seed)
        try:
            check.future().result()  # ray.get warns in the actors in which verl makes its agent loops
        except RayTaskError as exc:
            raise cause_of(exc) from None
        except (RayActorError, ActorUnschedulableError):
            pass

    async def _reconnect(self) -> None:
        """Wait until Ray has restarted the router, or make a new router; give up after `_RETURN_S` seconds."""
        from ray.exceptions import ActorDiedError, ActorUnschedulableError, RayActorError

        from verl_kernel.env.pool.cluster.router import CONTROL

        end = time.monotonic() + _RETURN_S
        while time.monotonic() < end:
            router = self._router
            try:
                await router.start.options(concurrency_group=CONTROL).remote()
                return
            except (ActorDiedError, ActorUnschedulableError):
                # Another caller may have replaced the router already: replacing it again would drop the only handle
                # that keeps the new one alive.
                if self._router is router:
                    self._router = self._find()
            except RayActorError:
                pass
            await asyncio.sleep(_PAUSE_S)

    def _find(self) -> Any:
        from verl_kernel.env.pool.cluster.router import find_or_make_router

        return find_or_make_router(self._options, self._seed, self._name)


async def _await_answer(answer: Any) -> EvalResult:
    """Await the router's answer; cancelling the wait cancels the request."""
    import ray

    from verl_kernel.env.pool.cluster.judge import cause_of

    try:
        result: EvalResult = await answer
    except asyncio.CancelledError:
        ray.cancel(answer)
        raise
    except ray.exceptions.RayTaskError as exc:
        raise cause_of(exc) from None
    return result
