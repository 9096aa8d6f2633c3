# SPDX-License-Identifier: Apache-2.0
"""The judges of a process, for frameworks that call an environment but leave nothing open between its calls."""

from __future__ import annotations

import atexit
from contextlib import ExitStack
from functools import cache
from typing import TypeAlias

from verl_kernel.client import RemoteGym, open_gym
from verl_kernel.commands.gym_options import chosen
from verl_kernel.env import GymOptions, LocalPool, Task
from verl_kernel.errors import InfraError
from verl_kernel.figures.attempts import attempt_of
from verl_kernel.reward.extract import extract_code, no_program
from verl_kernel.reward.judging import Judged

Judges: TypeAlias = "LocalPool | RemoteGym"


def gym_of(device: str = "auto", address: str | None = None) -> Judges:
    """Return the judges of this process, which end with it; they judge as those of `verl-kernel eval`.

    Args:
        device: where kernels run, for judges on this machine.
        address: service whose judges judge (`verl-kernel serve`); None starts judges here.

    Raises:
        ConfigError: a value is out of its range.
        EnvironmentNotReady: no service answers, or no judge can start here.
    """
    return opened(chosen({"device": device, "address": address}))


@cache
def opened(options: GymOptions) -> Judges:
    """Return the judges of this process by all of their options (raises what `gym_of` raises)."""
    return _OPEN.enter_context(open_gym(options, None))


_OPEN = ExitStack()
# Left to the interpreter, it would be closed when the threads that close judges have stopped.
atexit.register(_OPEN.close)


def answer_of(gym: Judges, task: Task, answer: str) -> Judged:
    """Judge an answer, and wait for the verdict (raises as `answered`)."""
    code = extract_code(answer, task.candidate_class)
    result = no_program(task) if code is None else gym.evaluate_many([(task, code, "")])[0]
    return answered(Judged.of(code, result))


def answered(judged: Judged) -> Judged:
    """Return what was judged.

    Raises:
        InfraError: the gym could not judge it; a framework must not take that for a bad answer.
    """
    if judged.lost:
        error, task = judged.result.error, judged.result.task_id
        raise InfraError(f"{task} was not judged: {'no reason is known' if error is None else error.message}")
    return judged


def figures_of(judged: Judged) -> dict[str, float]:
    """Return the figures of a verdict: `correct` (1 or 0) and `speedup` (0 if it has none)."""
    attempt = attempt_of(judged.result)
    return {"correct": float(attempt.correct), "speedup": attempt.speedup or 0.0}
