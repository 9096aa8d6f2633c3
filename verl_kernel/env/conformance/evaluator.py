# SPDX-License-Identifier: Apache-2.0
"""The interface that a conformance suite tests, the options it asks for, and how a case puts a question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from verl_kernel.env.conformance import programs
from verl_kernel.env.options import GymOptions
from verl_kernel.env.pool.stats import PoolStats
from verl_kernel.env.request import Job
from verl_kernel.env.result import EvalResult
from verl_kernel.env.task import Task

OPTIONS = GymOptions(
    static_check="off", correctness_trials=2, run_timeout_s=4.0, load_timeout_s=6.0, reference_timeout_s=6.0,
    num_judges=2, cpus_per_judge=0.5, memory_mb=1024,
)  # fmt: skip
"""What the suite asks for: no gate, so that the other layers are seen, and limits that keep it short."""
SEED = 11
TASK = Task(programs.REFERENCE, task_id="conformance")


class Evaluator(Protocol):
    """The interface under test."""

    async def evaluate(
        self, task: Task, source: str, *, kernel: str = "", validate: bool = False, step: int | None = None
    ) -> EvalResult:
        """Judge one candidate."""
        ...

    def evaluate_many(self, jobs: Sequence[Job]) -> list[EvalResult]:
        """Judge candidates; results in order."""
        ...

    def stats(self) -> PoolStats:
        """Queue and judges."""
        ...

    def close(self) -> None:
        """End it."""
        ...


class Unexpected(Exception):
    """A case's expectation does not hold."""


def expect(condition: bool, what: str, got: object) -> None:
    """Raise Unexpected unless a case's condition holds."""
    if not condition:
        raise Unexpected(f"expected {what}, got {got!r:.500}")


def judged(evaluator: Evaluator, source: str, task: Task = TASK) -> EvalResult:
    """The verdict on one source."""
    return evaluator.evaluate_many([(task, source, "kernel.py")])[0]
