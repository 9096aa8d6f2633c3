# SPDX-License-Identifier: Apache-2.0
"""SkyRL: an environment of `skyrl_gym` whose steps are answers, and a suite of tasks as rows of its data.

    skyrl_gym.register(id="kernelgym", entry_point="verl_kernel.adapters.skyrl:KernelEnv")

`environment.skyrl_gym.kernelgym` may hold `device` (auto) and `address`, a service whose judges judge.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

from verl_kernel.adapters.judges import answer_of, figures_of, gym_of
from verl_kernel.bench.suites import Suite
from verl_kernel.env import Task
from verl_kernel.rollout.feedback import format_feedback


def task_rows(suite: Suite) -> list[dict[str, Any]]:
    """Return the tasks of a suite as rows for a parquet file of SkyRL."""
    return [
        {
            "data_source": suite.name,
            "prompt": [dict(message) for message in item.messages],
            "env_class": "kernelgym",
            "reward_spec": {"method": "rule", "ground_truth": item.task.reference},
            "extra_info": {"task_id": item.task.task_id, "entry_point": item.task.entry_point},
        }
        for item in suite.tasks
    ]


class KernelEnv(BaseTextEnv):  # type: ignore[misc]
    """An episode is a task with some turns; the reward of a step is that of a training (PR).

    Args:
        env_config: `device` and `address`, as `adapters.judges.gym_of` takes them.
        extras: the row of `task_rows`, with the `max_turns` of SkyRL's generator.
    """

    def __init__(self, env_config: Any = None, extras: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        row = dict(extras or {})
        info = row.get("extra_info") or {}
        self.max_turns = int(row.get("max_turns") or 1)
        self._task = Task(row["reward_spec"]["ground_truth"], info.get("task_id", ""), info.get("entry_point", "Model"))
        self._gym = gym_of(**{key: env_config[key] for key in ("device", "address") if key in (env_config or {})})
        self._figures: dict[str, float] = {}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Judge an answer.

        Raises:
            InfraError: the gym could not judge it, so it has no reward.
        """
        self.turns += 1
        judged = answer_of(self._gym, self._task, action)
        self._figures = figures_of(judged)
        is_done = self.turns >= self.max_turns
        feedback = format_feedback(judged.result, candidate_class=self._task.candidate_class)
        return BaseTextEnvStepOutput(
            observations=[] if is_done else [{"role": "user", "content": feedback}],
            reward=judged.reward,
            done=is_done,
            metadata={"status": judged.result.status.value},
        )

    def get_metrics(self) -> dict[str, float]:
        """Return the figures of the last answer."""
        return dict(self._figures)
