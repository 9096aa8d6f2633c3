# SPDX-License-Identifier: Apache-2.0
"""The gain of more turns and of the tokens that they cost: a figure over each sample's last and over its best answer.

Over turns, the point at k covers the answers of each sample until turn k. Over tokens, the point at B covers the
answers that a sample gave for at most B tokens, prompts and answers of all turns together: a step function, as an
answer counts from the moment it is complete. A sample without an answer up to that point counts as a failure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from verl_kernel.figures.attempts import Attempt, RunPlan
from verl_kernel.figures.bootstrap import Bootstrap
from verl_kernel.figures.figures import ratio
from verl_kernel.figures.record import Estimate, FrozenRecord
from verl_kernel.figures.views import Samples, best_of_history, last_turn, samples_of
from verl_kernel.reporting.plots import draw_line, drawing

FIGURE = "fast@1.2"
BUDGETS = 64
"""Token budgets in a curve."""
Costs = dict[tuple[str, int], list[int]]
"""Maps task and sample to the tokens that the sample had spent when each of its answers was complete."""
_LINES = (("last", "-", "last turn"), ("best", "--", "best of history"))


class CurvePoint(FrozenRecord):
    """A figure at a turn, or at a budget of tokens for each sample."""

    at: int
    last: Estimate
    best: Estimate


class Curves(FrozenRecord):
    """The curves of one run."""

    name: str
    figure: str
    """Name of the figure, in `figures.figures.FIGURES`."""
    times: str = ""
    """Source of the times, in two or three words; empty if it is unknown."""
    tasks: int
    samples: int
    """Number of samples of each task."""
    mean_tokens: tuple[float, ...] | None = None
    """Mean tokens that a sample has spent until turn 1, 2, ...; null if tokens are unknown."""
    by_turn: tuple[CurvePoint, ...]
    by_tokens: tuple[CurvePoint, ...]
    """Empty where tokens are unknown."""


def curves(
    name: str,
    attempts: Sequence[Attempt],
    plan: RunPlan,
    figure: str = FIGURE,
    *,
    budgets: Sequence[int] | None = None,
    bootstrap: Bootstrap | None = None,
) -> Curves:
    """Return the curves of a run.

    Args:
        name: label of the run.
        attempts: the run's answers, each once.
        plan: the tasks, samples and turns that the run was asked for.
        figure: a name in `figures.figures.FIGURES`.
        budgets: token budgets, ascending; None for evenly spaced ones up to the cost of the most expensive sample.
        bootstrap: how intervals are drawn.

    Raises:
        DataError: an answer was not asked for, or occurs twice.
    """
    plan.refuse_others(attempts)
    samples, turns = samples_of(attempts, plan), range(1, plan.turns + 1)
    points = _Points(plan, figure, bootstrap or Bootstrap())
    costs = _costs(samples)
    steps = [] if costs is None else budgets if budgets is not None else _budgets(costs)
    return Curves(
        name=name,
        figure=figure,
        tasks=len(plan.tasks),
        samples=plan.samples,
        mean_tokens=None if costs is None else tuple(_mean_cost(costs, turn) for turn in turns),
        by_turn=tuple(points.point(turn, samples, turn) for turn in turns),
        by_tokens=tuple(points.point(step, _within_budget(samples, costs or {}, step), plan.turns) for step in steps),
    )


class _Points:
    """Computes the points of one figure."""

    def __init__(self, plan: RunPlan, figure: str, bootstrap: Bootstrap) -> None:
        self._plan, self._figure, self._bootstrap = plan, figure, bootstrap

    def point(self, at: int, samples: Samples, turn: int) -> CurvePoint:
        """Return the figure of the last and of the best of these answers until a turn."""
        last, best = (choose(samples, turn) for choose in (last_turn, best_of_history))
        return CurvePoint(at=at, last=self._estimate(last), best=self._estimate(best))

    def _estimate(self, answers: Sequence[Attempt]) -> Estimate:
        by_task = ratio(self._figure, answers, [task.task for task in self._plan.tasks])
        return self._bootstrap.estimates({self._figure: by_task})[self._figure]


def _costs(samples: Samples) -> Costs | None:
    """Return the tokens spent by each sample; None where the tokens of an answer are unknown."""
    costs = {key: [answer.tokens for answer in answers] for key, answers in samples.items()}
    if any(tokens is None for counts in costs.values() for tokens in counts):
        return None
    return {key: list(accumulate(_not_none(counts))) for key, counts in costs.items()}


def _not_none(values: Iterable[int | None]) -> list[int]:
    return [value for value in values if value is not None]


def _budgets(costs: Costs) -> list[int]:
    highest = max((totals[-1] for totals in costs.values() if totals), default=0)
    return sorted({-(-highest * number // BUDGETS) for number in range(1, BUDGETS + 1)}) if highest else []


def _mean_cost(costs: Costs, turn: int) -> float:
    return sum(totals[:turn][-1] for totals in costs.values() if totals) / len(costs)


def _within_budget(samples: Samples, costs: Costs, budget: int) -> Samples:
    return {
        key: [answer for answer, total in zip(answers, costs[key], strict=True) if total <= budget]
        for key, answers in samples.items()
    }


def title(runs: Sequence[Curves]) -> str:
    """Return the title: the figure that is drawn, and the source of its times."""
    if not runs:
        return ""
    return ", ".join([runs[0].figure, *dict.fromkeys(run.times for run in runs if run.times)])


def plot_curves(runs: Sequence[Curves], path: Path) -> None:
    """Save the figure in the format of the path's suffix; equal curves give identical SVG files.

    Raises:
        ModuleNotFoundError: matplotlib is not installed (extra `plot`).
        ValueError: matplotlib cannot write files of that suffix.
    """
    with drawing(path, 1, 2, figsize=(11, 4.2), sharey=True) as (figure, (turns, tokens)):
        for number, run in enumerate(runs):
            _draw(turns, run.by_turn, f"C{number}", run.name, is_step=False)
            _draw(tokens, run.by_tokens, f"C{number}", run.name, is_step=True)
        turns.set(xlabel="turn", ylabel=title(runs))
        turns.xaxis.get_major_locator().set_params(integer=True)
        tokens.set(xlabel="tokens of a sample, prompts and answers of all turns")
        handles, labels = turns.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=max(len(runs), 1), fontsize=8)


def _draw(axis: Any, points: Sequence[CurvePoint], colour: str, name: str, *, is_step: bool) -> None:
    """Draw both lines of a run with their intervals."""
    for key, style, words in _LINES:
        defined = [(point.at, estimate) for point in points if (estimate := getattr(point, key)).value is not None]
        if not defined:
            continue
        has_band = all(estimate.low is not None for _, estimate in defined)
        band = (
            ([estimate.low for _, estimate in defined], [estimate.high for _, estimate in defined])
            if has_band
            else None
        )
        at, values = [x for x, _ in defined], [estimate.value for _, estimate in defined]
        draw_line(axis, at, values, band, colour=colour, style=style, label=f"{name}, {words}", is_step=is_step)
