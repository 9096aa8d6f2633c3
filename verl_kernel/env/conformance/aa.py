# SPDX-License-Identifier: Apache-2.0
"""The A/A test: a reference is judged as its own candidate, in a runner process like any candidate.

Its speedup differs from 1 only by the clock's error. On a GPU that is fit for judging, the error lies within
`statistics.AA_BAND` for every protocol of `EvalResult.times`; a speedup within that band does not count as one.
"""

from __future__ import annotations

from dataclasses import replace

from verl_kernel.env.judge.judge import Judge
from verl_kernel.env.options import GymOptions
from verl_kernel.env.result import EvalResult, EvalStatus
from verl_kernel.env.task import Task
from verl_kernel.errors import ConfigError, InfraError


def aa_options(options: GymOptions) -> GymOptions:
    """Return options for a judge that times a reference as a candidate: no static gate, decoys recorded, eager mode."""
    return replace(options, static_check="off", decoys="record", reference_mode="eager")


def same_program(judge: Judge, task: Task) -> float:
    """Return the speedup of a task's reference over itself.

    Args:
        judge: made with `aa_options`.
        task: its reference is timed as reference and as candidate.

    Raises:
        TaskError: the reference is unusable.
        ConfigError: the judge was not made with `aa_options` and refuses the program.
        InfraError: the reference fails as a candidate, or its speedup is unknown.
    """
    speedup = judged_against_itself(judge, task).speedup
    if speedup is None:
        raise InfraError(f"task {task.task_id} has no speedup over itself: an op of it has no price")
    return speedup


def judged_against_itself(judge: Judge, task: Task) -> EvalResult:
    """Return the verdict on a task's reference as its own candidate; raises the errors of `same_program`."""
    result = judge.evaluate(task, as_candidate(task), kernel="reference")
    if result.status is EvalStatus.OK:
        return result
    reason = result.error.message if result.error else result.status.value
    if result.status in (EvalStatus.REJECTED_STATIC, EvalStatus.DECOY):
        raise ConfigError(f"this judge does not time a reference against itself ({reason}): make it with aa_options")
    raise InfraError(f"task {task.task_id} failed beside itself: {reason}")


def as_candidate(task: Task) -> str:
    """Return a task's reference as a candidate's source text."""
    return f"{task.reference}\n\nclass {task.candidate_class}({task.entry_point}):\n    pass\n"
