# SPDX-License-Identifier: Apache-2.0
"""A judge as a pool sees it, wherever its process lives."""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeVar

from verl_kernel.env.request import EvalRequest
from verl_kernel.env.result import EvalResult
from verl_kernel.errors import InfraError


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
