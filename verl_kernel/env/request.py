# SPDX-License-Identifier: Apache-2.0
"""Requests to the gym: to judge a candidate against a task, or to search a task for defects."""

from __future__ import annotations

from dataclasses import dataclass

from verl_kernel.env.task import Task

Job = tuple[Task, str, str]
"""Task, source, and the caller's name for the source: the first arguments of `EvalRequest`."""


@dataclass(frozen=True)
class EvalRequest:
    """A candidate to judge; the pool passes the same object on to the judge's process."""

    task: Task
    """The task that the candidate must solve."""
    source: str
    """The candidate's text; it need not be valid Python."""
    kernel: str = ""
    """The caller's name for the candidate."""
    validate: bool = False
    """Whether the request is served before training requests."""
    step: int | None = None
    """Training step; within a step, equal sources share one verdict."""


@dataclass(frozen=True)
class AuditRequest:
    """A task to look for defects in, without a candidate."""

    task: Task
