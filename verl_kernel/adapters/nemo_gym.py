# SPDX-License-Identifier: Apache-2.0
"""NeMo Gym: a resources server that judges, and a suite of tasks as lines of its data; `examples/nemo_gym` runs it."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)

from verl_kernel.adapters.judges import Judges, answered, figures_of, gym_of
from verl_kernel.bench.suites import Suite
from verl_kernel.env import Task
from verl_kernel.reward.judging import judge_answer


def task_lines(suite: Suite) -> list[dict[str, Any]]:
    """Return the tasks of a suite as lines for a JSONL file of NeMo Gym."""
    return [
        {
            "responses_create_params": {"input": [dict(message) for message in item.messages]},
            "reference": item.task.reference,
            "task_id": item.task.task_id,
            "entry_point": item.task.entry_point,
        }
        for item in suite.tasks
    ]


class KernelServerConfig(BaseResourcesServerConfig):  # type: ignore[misc]
    """Where answers are judged."""

    device: str = "auto"
    """Where kernels run, for judges on this machine."""
    address: str | None = None
    """Service whose judges judge (`verl-kernel serve`)."""


class KernelVerifyRequest(BaseVerifyRequest):  # type: ignore[misc]
    """An answer with its task, as `task_lines` writes it."""

    reference: str
    task_id: str = ""
    entry_point: str = "Model"


class KernelVerifyResponse(BaseVerifyResponse):  # type: ignore[misc]
    """A verdict."""

    status: str
    correct: float
    speedup: float


class KernelServer(SimpleResourcesServer):  # type: ignore[misc]
    """Judges answers; the reward is that of a training (PR)."""

    config: KernelServerConfig

    def setup_webserver(self) -> FastAPI:
        """Start the judges, and return the application (raises as `gym_of`)."""
        self._gym()
        application: FastAPI = super().setup_webserver()
        return application

    async def verify(self, body: KernelVerifyRequest) -> KernelVerifyResponse:
        """Judge an answer.

        Raises:
            InfraError: the gym could not judge it, so it has no reward.
        """
        task = Task(body.reference, body.task_id, body.entry_point)
        judged = answered(await judge_answer(task, body.response.output_text, self._gym().evaluate))
        echoed = {key: getattr(body, key) for key in ("responses_create_params", "response")}
        return KernelVerifyResponse(
            **echoed, **figures_of(judged), reward=judged.reward, status=judged.result.status.value
        )

    def _gym(self) -> Judges:
        return gym_of(self.config.device, self.config.address)
