# SPDX-License-Identifier: Apache-2.0
"""References that cannot serve, so that each is tried once and not once per candidate."""

from __future__ import annotations

from verl_kernel.env.task import Task
from verl_kernel.errors import TaskError


class UnfitTasks:
    """Their reasons, by task."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}

    def check(self, task: Task) -> None:
        """Raise TaskError for a task that failed before."""
        if task.fingerprint in self._reasons:
            raise TaskError(self._reasons[task.fingerprint])

    def remember(self, task: Task, failure: TaskError) -> TaskError:
        """Note that a task cannot serve."""
        self._reasons[task.fingerprint] = str(failure)
        return TaskError(str(failure))
