# SPDX-License-Identifier: Apache-2.0
"""OpenEnv: an environment whose actions are a model's answers, and whose observations are the gym's feedback.

    KERNEL_SUITE=tasks uvicorn --factory verl_kernel.adapters.openenv:app --port 8000

The environment variables are `KERNEL_SUITE` (as `--suite` of `verl-kernel bench`), `KERNEL_TURNS` (3), `KERNEL_DEVICE`
(auto) and `KERNEL_ADDRESS`, a service whose judges judge.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any
from uuid import uuid4

from fastapi import FastAPI
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State
from pydantic import Field

from verl_kernel.adapters.judges import gym_of
from verl_kernel.bench.suites import Suite, load_suite
from verl_kernel.client import Gym
from verl_kernel.errors import DataError
from verl_kernel.reward.judging import judge_answer
from verl_kernel.rollout.feedback import format_feedback

_MOST_SESSIONS = 64
"""Largest number of episodes at a time."""


class KernelAction(Action):  # type: ignore[misc]
    """A model's answer."""

    answer: str = Field(description="The answer, with the program in a ```python block")


class KernelObservation(Observation):  # type: ignore[misc]
    """A message to the model, with the verdict on its last answer."""

    message: str = Field(description="The task's prompt at first, and then the feedback on the last answer")
    task_id: str
    status: str | None = Field(default=None, description="Verdict on the last answer, such as ok or incorrect")
    speedup: float | None = None


class KernelEnvironment(Environment[KernelAction, KernelObservation, State]):  # type: ignore[misc]
    """An episode is a task with some turns; the reward of a step is that of a training (PR).

    Args:
        suite: the tasks.
        gym: judges.
        turns: answers of an episode.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, suite: Suite, gym: Gym, turns: int) -> None:
        super().__init__()
        self._suite, self._gym, self._turns = suite, gym, turns
        self._item, self._state = suite.tasks[0], State(episode_id=str(uuid4()), step_count=0)

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, task_id: str | None = None, **_: Any
    ) -> KernelObservation:
        """Begin with a task by its name, or else by the seed.

        Raises:
            DataError: there is no task of this name.
        """
        named = {item.task.task_id: item for item in self._suite.tasks}
        if task_id is not None and task_id not in named:
            raise DataError(f"there is no task {task_id!r} in the suite {self._suite.name}")
        self._item = named[task_id] if task_id is not None else self._suite.tasks[(seed or 0) % len(named)]
        self._state = State(episode_id=episode_id or str(uuid4()), step_count=0)
        prompt = "\n\n".join(message["content"] for message in self._item.messages)
        return KernelObservation(message=prompt, task_id=self._item.task.task_id)

    def step(self, action: KernelAction, timeout_s: float | None = None, **_: Any) -> KernelObservation:
        """Judge an answer."""
        return asyncio.run(self.step_async(action))

    async def step_async(self, action: KernelAction, timeout_s: float | None = None, **_: Any) -> KernelObservation:
        """Judge an answer; the reward is None if the gym could not, or the episode had ended."""
        task = self._item.task
        if self._state.step_count >= self._turns:
            return KernelObservation(
                message="The episode has ended: reset begins another.", task_id=task.task_id, done=True
            )
        judged = await judge_answer(task, action.answer, self._gym.evaluate)
        self._state.step_count += 1
        return KernelObservation(
            message=format_feedback(judged.result, candidate_class=task.candidate_class),
            task_id=task.task_id,
            status=judged.result.status.value,
            speedup=judged.result.speedup,
            reward=None if judged.lost else judged.reward,
            done=self._state.step_count >= self._turns,
        )

    @property
    def state(self) -> State:
        """Return the episode's id and the number of its steps."""
        return self._state


def app() -> FastAPI:
    """Return the application that the environment variables ask for; its judges end with this process."""
    setting = os.environ.get
    suite, turns = load_suite(setting("KERNEL_SUITE", "cpu")), int(setting("KERNEL_TURNS", "3"))
    gym = gym_of(setting("KERNEL_DEVICE", "auto"), setting("KERNEL_ADDRESS"))
    application: FastAPI = create_app(
        lambda: KernelEnvironment(suite, gym, turns),
        KernelAction,
        KernelObservation,
        env_name="kernelgym",
        max_concurrent_envs=_MOST_SESSIONS,
    )
    return application
