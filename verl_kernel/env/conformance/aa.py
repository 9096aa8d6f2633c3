# SPDX-License-Identifier: Apache-2.0
"""The A/A test: a reference judged against itself, through both processes, as a candidate is.

What differs from 1 is the clock's own error. On a GPU that is fit to judge it lies within `statistics.AA_BAND`, for
every protocol of `EvalResult.times`; no speedup within that band is taken for one.
"""

from __future__ import annotations

from dataclasses import replace

from verl_kernel.env.judge.judge import Judge
from verl_kernel.env.options import GymOptions
from verl_kernel.env.result import EvalResult, EvalStatus
from verl_kernel.env.task import Task
from verl_kernel.errors import ConfigError, InfraError


def aa_options(options: GymOptions) -> GymOptions:
    """The same gym, for a judge that times a program without kernels of its own: no gate, decoys recorded, eager."""
    return replace(options, static_check="off", decoys="record", reference_mode="eager")


def same_program(judge: Judge, task: Task) -> float:
    """Speedup of a task's reference over itself.

    Args:
        judge: made with `aa_options`.
        task: whose reference is timed on both sides.

    Raises:
        TaskError: the reference cannot serve.
        ConfigError: the judge refuses the program, as one with a gate does.
        InfraError: it fails beside itself, or has no speedup.
    """
    speedup = judged_against_itself(judge, task).speedup
    if speedup is None:
        raise InfraError(f"task {task.task_id} has no speedup over itself: an op of it has no price")
    return speedup


def judged_against_itself(judge: Judge, task: Task) -> EvalResult:
    """The whole verdict on a task's reference as its own candidate; errors are those of `same_program`."""
    result = judge.evaluate(task, as_candidate(task), kernel="reference")
    if result.status is EvalStatus.OK:
        return result
    reason = result.error.message if result.error else result.status.value
    if result.status in (EvalStatus.REJECTED_STATIC, EvalStatus.DECOY):
        raise ConfigError(f"this judge does not time a reference against itself ({reason}): make it with aa_options")
    raise InfraError(f"task {task.task_id} failed beside itself: {reason}")


def as_candidate(task: Task) -> str:
    """A task's reference as a candidate's source."""
    return f"{task.reference}\n\nclass {task.candidate_class}({task.entry_point}):\n    pass\n"
