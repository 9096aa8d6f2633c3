# SPDX-License-Identifier: Apache-2.0
"""References that cannot serve, so that each is tried once and not once per candidate."""

from __future__ import annotations

from verl_kernel.env.pool.scheduling.judge_handle import Job
from verl_kernel.errors import TaskError


class UnfitTasks:
    """Their reasons, by task."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}

    def check(self, job: Job) -> None:
        """Raise TaskError for a task that failed before."""
        if job[0].fingerprint in self._reasons:
            raise TaskError(self._reasons[job[0].fingerprint])

    def remember(self, job: Job, failure: TaskError) -> TaskError:
        """Note that a task cannot serve."""
        self._reasons[job[0].fingerprint] = str(failure)
        return TaskError(str(failure))
