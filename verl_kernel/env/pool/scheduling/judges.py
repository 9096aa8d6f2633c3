# SPDX-License-Identifier: Apache-2.0
"""What the scheduler knows of a pool's judges: handles, attempts, drained judges and tasks that no judge can use."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeVar

from verl_kernel.env.request import EvalRequest
from verl_kernel.env.result import EvalResult
from verl_kernel.env.task import Task
from verl_kernel.errors import InfraError, TaskError

# The interface between a pool and a judge, for local processes and Ray actors alike.


class Placement(NamedTuple):
    """A judge's node, process and GPU model."""

    node: str = ""
    """Id of the Ray node; empty in a local pool."""
    pid: int | None = None
    """Process id of the judge; None while no process runs."""
    model: str = ""
    """GPU model that its times refer to; known once it has started."""


class JudgeLost(InfraError):
    """The Ray actor that owns a judge, and perhaps its whole node, is gone."""


class TaskJudgeFailed(InfraError):
    """A judge that knows one task failed, perhaps by its reference: it says nothing of the judge of other tasks."""


class JudgeHandle(Protocol):
    """The dispatcher's handle on a judge."""

    async def judge(self, request: EvalRequest) -> EvalResult:
        """Judge one candidate; raises InfraError if the judge failed, TaskError if the reference is unusable."""
        ...

    async def revive(self) -> None:
        """Start or restart the judge and wait for it.

        Raises:
            InfraError: it does not start; a later try may succeed.
            EnvironmentNotReady: it can never start on this machine.
        """
        ...

    def describe(self) -> Placement:
        """Return what is known of its placement."""
        ...


Handle = TypeVar("Handle", bound=JudgeHandle)


# How often an evaluation is attempted if judges fail.


ATTEMPTS = 2
"""Attempts while the failed judge, or its owner, still exists and can restart."""
_LOSSES = 3
"""Further attempts if judges were lost with their node: its other judges may be chosen next and be lost as well."""


@dataclass
class Tries(Generic[Handle]):
    """The attempts at one evaluation."""

    attempts: int = 0
    """Attempts begun so far."""
    lost: int = 0
    """Attempts that ended because the judge's actor or node was lost."""
    suspect: Handle | None = None
    """The judge of the latest failed attempt."""
    failure: Exception = field(default_factory=lambda: InfraError("no attempt was made"))
    """The exception of the latest failed attempt."""
    queue_seconds: float = 0.0
    """Seconds from the request until the first judge took it."""
    begun: float = field(default_factory=time.monotonic)

    def begin(self) -> None:
        """Count a new attempt; a judge has been assigned."""
        self.queue_seconds = self.queue_seconds if self.attempts else time.monotonic() - self.begun
        self.attempts += 1

    def failed(self, judge: Handle, failure: InfraError) -> None:
        """Record that the attempt failed."""
        self.suspect = None if isinstance(failure, TaskJudgeFailed) else judge
        self.failure = failure
        self.lost += isinstance(failure, JudgeLost)

    @property
    def may_repeat(self) -> bool:
        """Whether another attempt is allowed."""
        return self.attempts - self.lost < ATTEMPTS and self.lost <= _LOSSES


# Drained judges get no new work: all judges on certain nodes, and single judges.


class Drains:
    """The nodes and judges that are drained."""

    def __init__(self) -> None:
        self._nodes: set[str] = set()
        self._judges: set[int] = set()

    def change(self, nodes: Iterable[str], judges: Iterable[int], on: bool) -> None:
        """Drain nodes (by id) and judges (by number) if `on`, else undo that."""
        if on:
            self._nodes.update(nodes)
            self._judges.update(judges)
        else:
            self._nodes.difference_update(nodes)
            self._judges.difference_update(judges)

    def cover(self, number: int, node: str) -> bool:
        """Tell whether the judge with this number, on this node, is drained."""
        return number in self._judges or node in self._nodes


# Unusable references, so that each is tried once and not once per candidate.


class UnusableTasks:
    """A record of tasks whose reference is unusable, with the reasons."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}

    def check(self, task: Task) -> None:
        """Raise TaskError if the task was unusable before."""
        if task.cache_key in self._reasons:
            raise TaskError(self._reasons[task.cache_key])

    def remember(self, task: Task, failure: TaskError) -> TaskError:
        """Record that a task is unusable; return an error that carries the message only."""
        self._reasons[task.cache_key] = str(failure)
        return TaskError(str(failure))
