# SPDX-License-Identifier: Apache-2.0
"""Judges one answer, in training and in a bench alike: extracts its program, gets a verdict, computes the reward."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from verl_kernel.env import EvalResult, EvalStatus, Task
from verl_kernel.reward.extract import extract_code, no_program
from verl_kernel.reward.profiling import ProfilingReward, profiling_reward

Evaluate = Callable[[Task, str], Awaitable[EvalResult]]
"""Judges one candidate."""


@dataclass(frozen=True)
class Judged:
    """An answer with its verdict."""

    code: str | None
    """The candidate's source; None where the answer holds none."""
    result: EvalResult
    reward: float
    """Reward of the answer; 0 if the gym could not judge it, and then it is never used as a reward."""

    @classmethod
    def of(cls, code: str | None, result: EvalResult, reward: ProfilingReward | None = None) -> Judged:
        """Compute the reward of a verdict; None uses the default reward."""
        lost = result.status is EvalStatus.INFRA_ERROR
        return cls(code, result, 0.0 if lost else profiling_reward(result, reward))

    @property
    def lost(self) -> bool:
        """Whether the gym could not judge the answer."""
        return self.result.status is EvalStatus.INFRA_ERROR


async def judge_answer(task: Task, answer: str, evaluate: Evaluate, reward: ProfilingReward | None = None) -> Judged:
    """Extract the program from an answer, have it judged, and compute its reward."""
    return await judge_program(task, extract_code(answer, task.candidate_class), evaluate, reward)


async def judge_program(
    task: Task, code: str | None, evaluate: Evaluate, reward: ProfilingReward | None = None
) -> Judged:
    """Have a program judged, and compute its reward; an answer without a program has the verdict of `no_program`."""
    result = no_program(task) if code is None else await evaluate(task, code)
    return Judged.of(code, result, reward)
