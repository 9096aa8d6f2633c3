# SPDX-License-Identifier: Apache-2.0
"""What is asked of the gym: one candidate, judged against one task."""

from __future__ import annotations

from dataclasses import dataclass

from verl_kernel.env.task import Task

Job = tuple[Task, str, str]
"""Task, source, and the caller's name for the source: the arguments of a request that `evaluate_many` takes."""


@dataclass(frozen=True)
class EvalRequest:
    """One candidate to judge; made once, where it is asked for, and handed on as it is to the judge's process."""

    task: Task
    """What it must compute."""
    source: str
    """Its text, whatever that is."""
    kernel: str = ""
    """The caller's name for it."""
    validate: bool = False
    """Whether it goes before training."""
    step: int | None = None
    """Training step: within it a source has one verdict, which is remembered."""


@dataclass(frozen=True)
class AuditRequest:
    """A task to look for defects in, without a candidate."""

    task: Task
