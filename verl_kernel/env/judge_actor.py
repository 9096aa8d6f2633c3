# SPDX-License-Identifier: Apache-2.0
"""One judge on a Ray cluster: the actor, and the router's handle on it."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError

from verl_kernel.env.dispatcher import Job
from verl_kernel.env.judge_process import JudgeProcess, evaluation_limit_s
from verl_kernel.env.options import GymOptions
from verl_kernel.env.result import EvalResult
from verl_kernel.errors import InfraError, VerlKernelError

_PLACEMENT_S = 120.0
_START_S = 180.0


class JudgeActor:
    """A judge process and its owner on some node; Ray starts the actor again after its death."""

    def __init__(self, options: GymOptions, seed: int | None) -> None:
        self._judge = JudgeProcess(options, seed)

    def start(self) -> tuple[str, int | None, int]:
        """Start the judge unless it is running; node, process id of the judge, process id of this actor.

        Raises:
            EnvironmentNotReady: this node cannot serve the options.
        """
        self._judge.start()
        return ray.get_runtime_context().get_node_id(), self._judge.pid, os.getpid()

    def evaluate(self, job: Job) -> tuple[EvalResult, int | None]:
        """Judge one candidate; the result and the process id of the judge."""
        return self._judge.evaluate(*job), self._judge.pid


class RemoteJudge:
    """The router's handle on a `JudgeActor`."""

    def __init__(self, options: GymOptions, seed: int | None) -> None:
        self._options = options
        self._deadline_s = evaluation_limit_s(options) + _START_S + 120.0  # after the judge's own
        make = ray.remote(JudgeActor).options(
            num_cpus=options.cpus_per_judge, num_gpus=options.gpus_per_judge, max_restarts=-1, max_task_retries=0,
            scheduling_strategy="SPREAD",
        )  # fmt: skip
        self._actor = make.remote(options, seed)
        self._node, self.actor_pid = "", 0
        self.pid: int | None = None

    async def evaluate(self, job: Job) -> EvalResult:
        """Judge one candidate."""
        result, self.pid = await self._ask(self._actor.evaluate.remote(job), self._deadline_s)
        return result  # type: ignore[no-any-return]

    async def revive(self) -> None:
        """Wait for the actor, and start its judge unless it is running."""
        self._node, self.pid, self.actor_pid = await self._ask(self._actor.start.remote(), _PLACEMENT_S + _START_S)

    def describe(self) -> tuple[str, int | None]:
        """Id of the node and process id of the judge."""
        return self._node, self.pid

    async def _ask(self, answer: Any, limit_s: float) -> Any:
        try:
            return await asyncio.wait_for(answer, limit_s)
        except (asyncio.TimeoutError, GetTimeoutError):
            raise self._silent(limit_s) from None
        except RayTaskError as exc:
            raise cause_of(exc) from None
        except RayActorError as exc:
            raise InfraError(f"a judge's actor is gone: {_first_line(exc)}") from None

    def _silent(self, limit_s: float) -> InfraError:
        if self.pid is None:
            cpus, gpus = self._options.cpus_per_judge, self._options.gpus_per_judge
            return InfraError(
                f"a judge has no place after {limit_s:g} s: it asks for {cpus:g} CPUs (kernelgym.cpus_per_judge) and "
                f"{gpus:g} GPUs (kernelgym.gpus_per_judge); ask for less or for fewer judges"
            )
        ray.kill(self._actor, no_restart=False)
        return InfraError(f"a judge's actor did not answer within {limit_s:g} s and was started again")


def cause_of(exc: RayTaskError) -> Exception:
    """The exception that a remote method raised, without the trace of how it travelled."""
    cause = exc.cause
    return cause if isinstance(cause, VerlKernelError) else InfraError(str(cause or exc)[:2000])


def _first_line(exc: Exception) -> str:
    return str(exc).strip().partition("\n")[0][:300]
