# SPDX-License-Identifier: Apache-2.0
"""Compares two runs on the same tasks, paired by task.

The same tasks are drawn for both runs in every resample, so the difficulty of a task, which is common to both, cancels
out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from verl_kernel.errors import DataError
from verl_kernel.figures.attempts import Attempt, RunPlan
from verl_kernel.figures.bootstrap import Bootstrap
from verl_kernel.figures.figures import CRITERIA, Ratio, known_figures, ratio
from verl_kernel.figures.record import Estimate, FrozenRecord, View
from verl_kernel.figures.views import best_of_history, last_turn, samples_of

_ROUNDING = 1e-9
"""An end of an interval that is this close to 0 differs from 0 by rounding alone."""


class Difference(FrozenRecord):
    """A figure of both runs."""

    figure: str
    view: View
    a: Estimate
    b: Estimate
    difference: Estimate
    """b - a, with the interval of the paired resamples."""

    @property
    def is_clear(self) -> bool:
        """Whether the interval excludes 0."""
        low, high = self.difference.low, self.difference.high
        return low is not None and high is not None and (low > _ROUNDING or high < -_ROUNDING)


class SideChange(FrozenRecord):
    """A task that passes in one run and not in the other; it passes where any of its samples does."""

    task: str
    criterion: str
    view: View
    a_passed: int
    a_samples: int
    """Numbers of samples that were judged."""
    b_passed: int
    b_samples: int


class FigureComparison(FrozenRecord):
    """All figures of two runs, and the tasks that changed sides."""

    tasks: int
    differences: tuple[Difference, ...]
    changes: tuple[SideChange, ...]
    confidence: float
    resamples: int
    seed: int


class Side(NamedTuple):
    """One of two runs."""

    attempts: Sequence[Attempt]
    plan: RunPlan


def compare(a: Side, b: Side, bootstrap: Bootstrap | None = None) -> FigureComparison:
    """Compare two runs.

    Raises:
        DataError: they were asked for different tasks, or an answer was not asked for.
    """
    bootstrap = bootstrap or Bootstrap()
    tasks = [task.task for task in a.plan.tasks]
    if set(tasks) != {task.task for task in b.plan.tasks}:
        raise DataError("the two runs were asked different tasks: compare runs of one suite")
    ours, theirs = _Answers.of(a), _Answers.of(b)
    views: list[tuple[View, list[Attempt], list[Attempt]]] = [
        ("last turn", ours.last, theirs.last),
        ("best of history", ours.best, theirs.best),
    ]
    return FigureComparison(
        tasks=len(tasks),
        differences=tuple(
            difference(figure, view, ratio(figure, a_answers, tasks), ratio(figure, b_answers, tasks), bootstrap)
            for view, a_answers, b_answers in views
            for figure in known_figures([*ours.last, *theirs.last], max(a.plan.turns, b.plan.turns))
        ),
        changes=tuple(
            change
            for view, a_answers, b_answers in views
            for criterion in CRITERIA
            for change in _changes(tasks, criterion, view, a_answers, b_answers)
        ),
        confidence=bootstrap.confidence,
        resamples=bootstrap.resamples,
        seed=bootstrap.seed,
    )


class _Answers(NamedTuple):
    """The answers of one side that count."""

    last: list[Attempt]
    best: list[Attempt]

    @classmethod
    def of(cls, side: Side) -> _Answers:
        side.plan.refuse_others(side.attempts)
        samples, turns = samples_of(side.attempts, side.plan), side.plan.turns
        return cls(last_turn(samples, turns), best_of_history(samples, turns))


def difference(figure: str, view: View, a: Ratio, b: Ratio, bootstrap: Bootstrap) -> Difference:
    """Return a figure of both runs and its change, by resamples that take the same tasks from both."""
    estimates = bootstrap.estimates({"a": a, "b": b})
    values = estimates["a"].value, estimates["b"].value
    change = float("nan") if values[0] is None or values[1] is None else values[1] - values[0]
    change_estimate = bootstrap.estimate(change, bootstrap.resampled(b) - bootstrap.resampled(a))
    return Difference(figure=figure, view=view, a=estimates["a"], b=estimates["b"], difference=change_estimate)


def _changes(
    tasks: Sequence[str], criterion: str, view: View, ours: Sequence[Attempt], theirs: Sequence[Attempt]
) -> list[SideChange]:
    """Return the tasks that pass on one side only, without those that have no judged sample on a side."""
    sides = ratio(criterion, ours, tasks), ratio(criterion, theirs, tasks)
    columns = [column.astype(int).tolist() for side in sides for column in (side.sums, side.counts)]
    return [
        SideChange(
            task=task,
            criterion=criterion,
            view=view,
            a_passed=passed,
            a_samples=samples,
            b_passed=other_passed,
            b_samples=other_samples,
        )
        for task, passed, samples, other_passed, other_samples in zip(tasks, *columns, strict=True)
        if samples and other_samples and bool(passed) != bool(other_passed)
    ]
