# SPDX-License-Identifier: Apache-2.0
"""A Ray cluster's shared pool, as agent loops and reward workers see it."""

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
_RETURN_S, _PAUSE_S = 120.0, 0.5


class KernelGym:
    """A light handle on the pool that can be pickled and sent anywhere in the job.

    The pool belongs to the process that made it and ends with it; every other handle then makes or finds a new one.
    A pool whose processes die is brought back by Ray, and what was under way is done again once.
    """

    def __init__(self, options: GymOptions, name: str, seed: int | None = None) -> None:
        self._options, self._name, self._seed = options, name, seed
        self._router = self._find()

    @classmethod
    def connect(cls, options: GymOptions, name: str = "kernelgym", seed: int | None = None) -> KernelGym:
        """Return a handle on the pool called `name`, made from `options` if there is none yet.

        Raises:
            ConfigError: the pool was made from other options, or with another seed than a `seed` that is given.
        """
        gym = cls(options, name, seed)
        gym._check_options()
        return gym

    def __reduce__(self) -> tuple[Callable[..., KernelGym], tuple[Any, ...]]:
        return KernelGym, (self._options, self._name, self._seed)

    async def evaluate(
        self, task: Task, source: str, *, kernel: str = "", validate: bool = False, step: int | None = None
    ) -> EvalResult:
        """Judge one candidate; waits where the queue is full.

        Args:
            task: what it must compute.
            source: its text.
            kernel: the caller's name for it.
            validate: go before training.
            step: a verdict is remembered for the same source in the same step.

        Raises:
            TaskError: the reference cannot serve.
            EnvironmentNotReady: no judge of the pool can work.
        """
        from ray.exceptions import ActorUnschedulableError, RayActorError

        from verl_kernel.env.pool.cluster.router import TRAINING, VALIDATION

        request = EvalRequest(task, source, kernel, validate, step)
        failure: Exception = InfraError("no attempt was made")
        for attempt in range(ATTEMPTS):
            try:
                group = VALIDATION if validate else TRAINING
                return await _await_answer(self._router.judge.options(concurrency_group=group).remote(request, attempt))
            except (RayActorError, ActorUnschedulableError) as exc:  # the second: its node is gone
                failure = exc
                _LOG.warning("the pool %s is gone (attempt %d of %d): %s", self._name, attempt + 1, ATTEMPTS, exc)
                await self._reconnect()
        return not_judged(request, failure, ATTEMPTS)

    def evaluate_many(self, jobs: Sequence[Job]) -> list[EvalResult]:
        """Judge candidates; results in the order of `jobs`. Not for use inside a running event loop."""

        async def all_of_them() -> list[EvalResult]:
            calls = (self.evaluate(task, source, kernel=kernel) for task, source, kernel in jobs)
            return await asyncio.gather(*calls)

        return asyncio.run(all_of_them())

    def stats(self) -> PoolStats:
        """Judges, queue and counts at this moment."""
        stats: PoolStats = self._control("stats")
        return stats

    def ready(self) -> list[int]:
        """Wait until all judges have started; their process ids.

        Raises:
            EnvironmentNotReady: a judge cannot work on its node.
        """
        pids: list[int] = self._control("ready")
        return pids

    def forget(self) -> None:
        """Forget all verdicts."""
        self._control("forget")

    def drain(self, node: str | None = None, *, judge: int | None = None) -> list[int]:
        """Let judges finish what they have and give them nothing new, before maintenance.

        Args:
            node: id (or its beginning), address or host name of a node whose judges are meant.
            judge: number of one judge.

        Returns:
            Numbers of the judges that this concerns now; `stats` tells when they are `drained`.

        Raises:
            ConfigError: there is no such node or judge.
        """
        numbers: list[int] = self._control("drain", node, judge, True)
        return numbers

    def undrain(self, node: str | None = None, *, judge: int | None = None) -> list[int]:
        """Take `drain` back."""
        numbers: list[int] = self._control("drain", node, judge, False)
        return numbers

    def close(self) -> None:
        """End the pool for everybody."""
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
        """Ask the pool whether it was made from these options; one that is gone is made from them by the first call."""
        from ray.exceptions import ActorUnschedulableError, RayActorError, RayTaskError

        from verl_kernel.env.pool.cluster.judge import cause_of
        from verl_kernel.env.pool.cluster.router import CONTROL

        asked = self._router.check_options.options(concurrency_group=CONTROL).remote(self._options, self._seed)
        try:
            asked.future().result()  # ray.get warns in the actors in which verl makes its agent loops
        except RayTaskError as exc:
            raise cause_of(exc) from None
        except (RayActorError, ActorUnschedulableError):
            pass

    async def _reconnect(self) -> None:
        """Wait until Ray has restarted the router, or make a new one."""
        from ray.exceptions import ActorDiedError, ActorUnschedulableError, RayActorError

        from verl_kernel.env.pool.cluster.router import CONTROL

        end = time.monotonic() + _RETURN_S
        while time.monotonic() < end:
            router = self._router
            try:
                await router.start.options(concurrency_group=CONTROL).remote()
                return
            except (ActorDiedError, ActorUnschedulableError):
                if self._router is router:  # a second caller would drop the handle that keeps it alive
                    self._router = self._find()
            except RayActorError:
                pass
            await asyncio.sleep(_PAUSE_S)

    def _find(self) -> Any:
        from verl_kernel.env.pool.cluster.router import find_or_make_router

        return find_or_make_router(self._options, self._seed, self._name)


async def _await_answer(answer: Any) -> EvalResult:
    """The router's answer; who waits for it no more takes the request back."""
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
