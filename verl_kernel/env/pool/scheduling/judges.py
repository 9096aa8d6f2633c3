# SPDX-License-Identifier: Apache-2.0
"""The judges of a pool as the scheduler sees them: handles, tries, how they leave, and what they cannot judge."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeVar

from verl_kernel.env.request import EvalRequest
from verl_kernel.env.result import EvalResult
from verl_kernel.env.task import Task
from verl_kernel.errors import InfraError, TaskError

# A judge as a pool sees it, wherever its process lives.


class Placement(NamedTuple):
    """Where a judge is and what its times are of."""

    node: str = ""
    """Id of the node; empty on this machine."""
    pid: int | None = None
    """Process of the judge; None where it has none."""
    model: str = ""
    """GPU model, and the group of `kernelgym.judge_resources` where there are several; known once it has started."""
    group: str = ""
    """That group's name; empty where there is one group."""


class JudgeLost(InfraError):
    """A judge is gone together with whoever could start it again, and its node perhaps with it."""


class JudgeHandle(Protocol):
    """A judge as the dispatcher sees it."""

    async def judge(self, request: EvalRequest) -> EvalResult:
        """Judge one candidate; raises InfraError where that failed for reasons of ours."""
        ...

    async def revive(self) -> None:
        """Return once it can serve (again); raises InfraError if it cannot now, EnvironmentNotReady if never."""
        ...

    def describe(self) -> Placement:
        """Where it is, as far as is known."""
        ...


Handle = TypeVar("Handle", bound=JudgeHandle)


# How often an evaluation that failed for reasons of ours is done again.


ATTEMPTS = 2
"""Attempts that may fail while the judge, or an owner who restarts it, is still there."""
_LOSSES = 3
"""Further attempts after the judge was lost with its node: the node's other judges are lost one after another."""


@dataclass
class Tries(Generic[Handle]):
    """The attempts at one evaluation."""

    made: int = 0
    lost: int = 0
    """Those that ended with the judge's actor or node."""
    suspect: Handle | None = None
    """The judge that failed last."""
    failure: Exception = field(default_factory=lambda: InfraError("no attempt was made"))
    """How it failed."""
    queue_seconds: float = 0.0
    """From the beginning to the first judge."""
    begun: float = field(default_factory=time.monotonic)

    def begin(self) -> None:
        """Note that a judge is there for another attempt."""
        self.queue_seconds = self.queue_seconds if self.made else time.monotonic() - self.begun
        self.made += 1

    def failed(self, judge: Handle, failure: InfraError) -> None:
        """Note that it failed."""
        self.suspect, self.failure = judge, failure
        self.lost += isinstance(failure, JudgeLost)

    @property
    def left(self) -> bool:
        """Whether there is another one."""
        return self.made - self.lost < ATTEMPTS and self.lost <= _LOSSES


# Which judges are to get nothing new: all on certain nodes, wherever those judges came from, and certain judges.


class Drains:
    """What was asked for and not taken back."""

    def __init__(self) -> None:
        self._nodes: set[str] = set()
        self._judges: set[int] = set()

    def change(self, nodes: Iterable[str], judges: Iterable[int], on: bool) -> None:
        """Drain nodes (by id) and judges (by number), or take that back."""
        if on:
            self._nodes.update(nodes)
            self._judges.update(judges)
        else:
            self._nodes.difference_update(nodes)
            self._judges.difference_update(judges)

    def cover(self, number: int, node: str) -> bool:
        """Whether a judge of this number on this node is drained."""
        return number in self._judges or node in self._nodes


# References that cannot serve, so that each is tried once and not once per candidate.


class UnusableTasks:
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
