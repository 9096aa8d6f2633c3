# SPDX-License-Identifier: Apache-2.0
"""The rows of the table of tasks: each task's best answer, and how its other answers ended."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from verl_kernel.bench.records import BenchTurn
from verl_kernel.bench.scores import attempt
from verl_kernel.figures.attempts import Attempt, PlannedTask, RunPlan, best
from verl_kernel.figures.views import MISSING


@dataclass(frozen=True)
class TaskRow:
    """One task's row."""

    task: str
    level: int | None
    family: str | None
    status: str
    """Status of the best answer."""
    counts: dict[str, int]
    """Answers by status, most frequent first."""
    right: int
    """Number of samples with a correct answer in any turn."""
    samples: int
    speedup: float | None
    """Speedup of the best answer."""
    sure: float | None
    """Highest speedup that is beyond noise."""
    first_right: int | None
    """Earliest turn at which a sample had a correct answer."""
    kernel_ms: float | None
    reference_ms: float | None
    coverage: float | None
    """Share of the best answer's device time that is spent in its own kernels."""
    roofline: float | None
    answers: tuple[BenchTurn, ...]
    """The answers, sorted by sample and turn."""
    chosen: tuple[int, int] | None
    """Sample and turn of the best answer."""


def task_rows(plan: RunPlan, turns: Sequence[BenchTurn]) -> list[TaskRow]:
    """Return a row for each task that was asked for, in the suite's order."""
    answers: defaultdict[str, list[BenchTurn]] = defaultdict(list)
    for turn in turns:
        answers[turn.task_id].append(turn)
    return [_row(task, plan.samples, answers[task.task]) for task in plan.tasks]


def _row(task: PlannedTask, samples: int, turns: list[BenchTurn]) -> TaskRow:
    ordered = sorted(turns, key=lambda turn: (turn.sample, turn.turn))
    pairs = [(attempt(turn), turn) for turn in ordered]
    tries = [answer for answer, _ in pairs]
    right = [answer for answer in tries if answer.correct]
    top = best(tries) if tries else Attempt(task.task, 0, 1, MISSING, correct=False)
    result = next(
        (turn.result for answer, turn in pairs if (answer.sample, answer.turn) == (top.sample, top.turn)), None
    )
    kernel, reference = (result.kernel_ms, result.reference_ms) if result else (None, None)
    return TaskRow(
        task=task.task,
        level=task.level,
        family=task.family,
        status=top.status,
        counts=dict(Counter(answer.status for answer in tries).most_common()),
        right=len({answer.sample for answer in right}),
        samples=samples,
        speedup=top.speedup,
        sure=top.sure_speedup,
        first_right=min((answer.turn for answer in right), default=None),
        kernel_ms=kernel.median if kernel and top.correct else None,
        reference_ms=_reference_ms(ordered) if reference is None else reference.median,
        coverage=result.time_coverage if result and top.correct else None,
        roofline=top.roofline,
        answers=tuple(ordered),
        chosen=(top.sample, top.turn) if tries else None,
    )


def _reference_ms(turns: Sequence[BenchTurn]) -> float | None:
    """Return the reference's time as any answer reports it."""
    return next((turn.result.reference_ms.median for turn in turns if turn.result.reference_ms is not None), None)
