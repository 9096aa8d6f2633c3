# SPDX-License-Identifier: Apache-2.0
"""A judge on a Ray cluster: the actor, and the router's handle on the actor."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError

from verl_kernel.env.options import GymOptions
from verl_kernel.env.pool.judge_process import make_judge
from verl_kernel.env.pool.limits import evaluation_limit_s
from verl_kernel.env.pool.scheduling.judges import JudgeLost, Placement
from verl_kernel.env.request import EvalRequest
from verl_kernel.env.result import EvalResult
from verl_kernel.errors import EnvironmentNotReady, InfraError, VerlKernelError

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_PLACEMENT_S = 120.0
"""Longest wait until Ray places an actor on a node."""
_START_S = 180.0
"""Longest start of a judge process."""


class JudgeActor:
    """The Ray actor that owns a judge process on its node; Ray restarts the actor if it dies."""

    def __init__(self, options: GymOptions, seed: int | None) -> None:
        self._judge = make_judge(options, seed)
        context = ray.get_runtime_context()
        self._node, self._share = context.get_node_id(), options.gpus_per_judge
        self._gpus: list[str] = context.get_accelerator_ids().get("GPU", [])
        if self._gpus:
            # Ray does so itself, but not under RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES, which launch scripts of
            # verl set: every judge would take the first GPU, which is the trainer's.
            os.environ[_VISIBLE] = ",".join(self._gpus)

    def start(self) -> Placement:
        """Start the judge unless it is running, and return its placement.

        Raises:
            EnvironmentNotReady: this node lacks something that the options require.
        """
        if self._share > 0 and not self._gpus:
            raise EnvironmentNotReady(
                f"kernelgym.gpus_per_judge is {self._share:g} and Ray has granted this judge no GPU: let Ray count the "
                "GPUs of its nodes (`ray start` without --num-gpus=0)"
            )
        self._judge.start()
        return Placement(self._node, self._judge.pid, self._judge.model)

    def judge(self, request: EvalRequest, placement: Placement) -> tuple[EvalResult, int | None]:
        """Judge one candidate; return the result and the judge's process id.

        Args:
            request: the candidate and its task.
            placement: where the caller expects this judge to run.

        Raises:
            JudgeLost: Ray has restarted this actor on another node or GPU model than `placement`.
        """
        self._judge.start()
        if (self._node, self._judge.model) != (placement.node, placement.model):
            raise JudgeLost(f"a judge has been started anew, on node {self._node[:12]} with {self._judge.model}")
        return self._judge.judge(request), self._judge.pid


class RemoteJudge:
    """The router's handle on a `JudgeActor`."""

    def __init__(self, options: GymOptions, seed: int | None) -> None:
        self._options, self._resources = options, dict(options.judge_resources)
        make = ray.remote(JudgeActor).options(
            num_cpus=options.cpus_per_judge,
            num_gpus=options.gpus_per_judge,
            resources=self._resources or None,
            max_restarts=-1,
            max_task_retries=0,
            scheduling_strategy="SPREAD",
        )
        # Retries are the dispatcher's (`max_task_retries=0`): it may choose another judge, and counts failures.
        self._actor = make.remote(options, seed)
        self._placement = Placement()

    @property
    def pid(self) -> int | None:
        """Process id of the judge; None while no process runs."""
        return self._placement.pid

    async def judge(self, request: EvalRequest) -> EvalResult:
        """Judge one candidate."""
        result: EvalResult
        # Later than the actor's own limit for its judge process, whose error says more than a timeout here.
        deadline_s = evaluation_limit_s(self._options, len(request.task.workloads)) + _START_S + 120.0
        result, pid = await self._ask(self._actor.judge.remote(request, self._placement), deadline_s)
        self._placement = self._placement._replace(pid=pid)
        return result

    async def revive(self) -> None:
        """Wait until the actor is placed, and start its judge unless it is running."""
        self._placement = await self._ask(self._actor.start.remote(), _PLACEMENT_S + _START_S)

    def describe(self) -> Placement:
        """Return node, process and GPU model."""
        return self._placement

    async def _ask(self, answer: Any, limit_s: float) -> Any:
        try:
            return await asyncio.wait_for(answer, limit_s)
        except (asyncio.TimeoutError, GetTimeoutError):
            raise self._no_answer(limit_s) from None
        except RayTaskError as exc:
            raise cause_of(exc) from None
        except RayActorError as exc:
            self._placement = self._placement._replace(pid=None)
            raise JudgeLost(f"a judge's actor is gone: {_first_line(exc)}") from None

    def _no_answer(self, limit_s: float) -> InfraError:
        if self.pid is None:
            return InfraError(
                f"a judge has no place after {limit_s:g} s: it asks for {self._requested_resources()}; "
                "ask for less or for fewer judges"
            )
        # Killed so that Ray restarts it: an actor that hangs would block every later call.
        ray.kill(self._actor, no_restart=False)
        return InfraError(f"a judge's actor did not answer within {limit_s:g} s and was started again")

    def _requested_resources(self) -> str:
        cpus, gpus = self._options.cpus_per_judge, self._options.gpus_per_judge
        named = "".join(f", {amount:g} {name} (kernelgym.judge_resources)" for name, amount in self._resources.items())
        return f"{cpus:g} CPUs (kernelgym.cpus_per_judge), {gpus:g} GPUs (kernelgym.gpus_per_judge){named}"


def cause_of(exc: RayTaskError) -> Exception:
    """Return the exception that a remote method raised, without Ray's traceback around it."""
    cause = exc.cause
    return cause if isinstance(cause, VerlKernelError) else InfraError(str(cause or exc)[:2000])


def _first_line(exc: Exception) -> str:
    return str(exc).strip().partition("\n")[0][:300]
