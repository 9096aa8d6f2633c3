# SPDX-License-Identifier: Apache-2.0
"""TRL: the gym as a reward function, and a suite of tasks as a data set.

with open_gym(GymOptions(device="cpu"), None) as gym:
    GRPOTrainer(model, reward_funcs=KernelReward(gym), train_dataset=task_dataset(load_suite("tasks")), ...)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from statistics import mean
from typing import Any

from datasets import Dataset

from verl_kernel.adapters.judges import figures_of
from verl_kernel.bench.suites import Suite
from verl_kernel.client import Gym
from verl_kernel.env import Task
from verl_kernel.reward.judging import Judged, judge_answer
from verl_kernel.reward.profiling import ProfilingReward


def task_dataset(suite: Suite) -> Dataset:
    """Return the tasks of a suite with the columns `prompt` (messages), `reference`, `task_id` and `entry_point`."""
    return Dataset.from_list(
        [
            {
                "prompt": [dict(message) for message in item.messages],
                "reference": item.task.reference,
                "task_id": item.task.task_id,
                "entry_point": item.task.entry_point,
            }
            for item in suite.tasks
        ]
    )


class KernelReward:
    """A reward function of TRL: the profiling-based reward (PR) of each answer; None where the gym could not judge.

    Args:
        gym: judges.
        reward: its options; None takes the defaults of our recipes.
    """

    __name__ = "kernelgym"
    """Name of the reward in TRL's metrics."""

    def __init__(self, gym: Gym, reward: ProfilingReward | None = None) -> None:
        self._gym, self._reward = gym, reward

    def __call__(
        self,
        completions: Sequence[Any],
        reference: Sequence[str],
        task_id: Sequence[str],
        entry_point: Sequence[str],
        log_metric: Callable[[str, float], None] | None = None,
        **_: object,
    ) -> list[float | None]:
        """Judge the completions of a batch, whose other columns are those of `task_dataset`.

        TRL's `log_metric` gets the means of `correct` and `speedup` (0 where an answer has none) of what was judged.
        """
        tasks = [Task(*texts) for texts in zip(reference, task_id, entry_point, strict=True)]

        async def all_of_them() -> list[Judged]:
            answers = zip(tasks, map(_text, completions), strict=True)
            return await asyncio.gather(
                *(judge_answer(task, answer, self._gym.evaluate, self._reward) for task, answer in answers)
            )

        judged = asyncio.run(all_of_them())
        if log_metric is not None and (figures := [figures_of(one) for one in judged if not one.lost]):
            for name in figures[0]:
                log_metric(f"kernelgym/{name}", mean(each[name] for each in figures))
        return [None if one.lost else one.reward for one in judged]


def _text(completion: Any) -> str:
    """Return the text of a completion, which TRL gives as messages if the prompt has them."""
    return completion if isinstance(completion, str) else str(completion[-1]["content"])
