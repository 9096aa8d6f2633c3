# SPDX-License-Identifier: Apache-2.0
"""Scores and comparisons as tables on a terminal, and the same cells for a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.markup import escape
from rich.table import Table

from verl_kernel.bench.scores import RunComparison
from verl_kernel.figures.comparison import Difference, SideChange
from verl_kernel.figures.figures import NOVELTY, OTHER_SIZES, REPAIRS
from verl_kernel.figures.record import Estimate, Scores, View, Views

VIEWS: tuple[View, ...] = ("last turn", "best of history", "all answers")
SHOWN = ("correct", "fast@1", "fast@1.2", "fast@1.2 (sure)")
"""Figures in the tables by turn and by group, and criteria for pass@k and for tasks that only one run solves."""


MAIN = ("correct", "hacking", "fast@1.2", "fast@1.2 (sure)", "speedup (all)")
"""Figures that are shown unless all are asked for."""


def cell(name: str, estimate: Estimate, signed: bool = False) -> str:
    """Format a figure and its interval: speedups as factors, all others as shares; "-" if it is unknown."""
    if estimate.value is None:
        return "-"
    sign, unit = "+" if signed else "", "x" if name.startswith("speedup") else ""
    interval = "" if estimate.low is None else f" [{estimate.low:{sign}.3f}, {estimate.high:{sign}.3f}]"
    return f"{estimate.value:{sign}.3f}{unit}{interval}"


def notes(scores: Scores) -> list[str]:
    """Return the notes that belong to the figures; only those that apply."""
    counts = f"{scores.tasks} tasks x {scores.samples} samples x {scores.turns} turns: {scores.answers} answers"
    if scores.missing:
        counts += f"; {scores.missing} samples have none and count as failures"
    if scores.ended_early:
        counts += f"; {scores.ended_early} ended before the last turn"
    lost = (
        f"{scores.lost} answers were lost to failures of the gym and are in no figure; counted as wrong, as verl's "
        f"`acc` does, {cell('acc', scores.verl_acc)} of all samples are correct at their last turn"
    )
    share = f"{100 * scores.confidence:g} %"
    brackets = f"brackets: {share} percentile bootstrap by task, {scores.resamples} resamples, seed {scores.seed}"
    return [counts, *[lost] * bool(scores.lost), brackets]


def conventions() -> list[str]:
    """Return the meanings of the figures' names."""
    return [
        "fast@p: correct and more than p times as fast as the reference (KernelBench's fast_p); `sure` asks that the "
        "whole interval of the speedup lies above p",
    ]


def main_table(scores: Scores, title: str) -> Table:
    """Return the main figures over all turns; for a single turn in one column, as its last answer is its best one."""
    views = VIEWS[:2] if scores.turns > 1 else VIEWS[:1]
    table = Table("figure", *(views if len(views) > 1 else ("score",)), title=escape(title), title_justify="left")
    values = scores.overall.all_answers.values
    for name in (*MAIN, *(name for name in (*REPAIRS, *OTHER_SIZES, *NOVELTY) if name in values)):
        table.add_row(name, *(cell(name, scores.overall.view(view).values[name]) for view in views))
    return table


def temperatures_table(scores: Mapping[float, Scores], title: str) -> Table:
    """Return the main figures of runs at several temperatures, at the last turn, with those of each family.

    The temperature with the most correct answers is marked: what training adds shows beside the untrained model at its
    best one.
    """
    correct = {at: own.overall.last_turn.values["correct"].value or 0.0 for at, own in scores.items()}
    best = max(correct, key=lambda at: correct[at])
    table = Table("temperature", "tasks", *MAIN, title=escape(title), title_justify="left")
    for at, own in scores.items():
        name = f"{at:g}" + " (best)" * (at == best)
        parts = {"all": own.overall, **own.by_family}
        for part, views in parts.items():
            values = views.last_turn.values
            table.add_row(name if part == "all" else "", part, *(cell(key, values[key]) for key in MAIN))
    return table


def scores_table(scores: Scores, title: str) -> Table:
    """Return every figure in the three views, over all turns."""
    table = Table("figure", *VIEWS, title=escape(title), title_justify="left")
    for name in scores.overall.all_answers.values:
        table.add_row(name, *(cell(name, scores.overall.view(view).values[name]) for view in VIEWS))
    counts = [scores.overall.view(view) for view in VIEWS]
    table.add_row(
        "answers (missing, lost)", *(f"{figures.answers} ({figures.missing}, {figures.lost})" for figures in counts)
    )
    return table


def turns_table(scores: Scores) -> Table:
    """Return a row for each turn and view: the figures reached until then, and the tokens that it took."""
    table = Table("turn", "view", *SHOWN, "tokens", title="by turn", title_justify="left")
    for number, views in enumerate(scores.by_turn, 1):
        for view in VIEWS[:2]:
            table.add_row(str(number), view, *_figure_cells(views, view), _tokens(views))
    return table


def groups_table(groups: dict[str, Views], title: str, view: View = "best of history") -> Table:
    """Return a row for each level or family."""
    table = Table(title, *SHOWN, "answers", title=f"by {title}, {view}", title_justify="left")
    for name, views in groups.items():
        table.add_row(escape(name), *_figure_cells(views, view), str(views.view(view).answers))
    return table


def passes_table(scores: Scores) -> Table:
    """Return a row for each view and criterion, and a column for each k."""
    ks = sorted({entry.k for entry in scores.passes})
    columns = (f"pass@{k}" for k in ks)
    table = Table("view", "criterion", *columns, title="pass@k, mean over tasks", title_justify="left")
    for view in VIEWS[:2]:
        for name in SHOWN:
            by_k = {entry.k: entry for entry in scores.passes if (entry.view, entry.criterion) == (view, name)}
            table.add_row(view, name, *(cell("pass", by_k[k].estimate) for k in ks))
    return table


def all_tables(scores: Scores, title: str) -> Iterator[Table]:
    """Yield all tables that have something to show."""
    yield scores_table(scores, title)
    if scores.turns > 1:
        yield turns_table(scores)
    if len(scores.by_level) > 1:
        yield groups_table(scores.by_level, "level")
    if len(scores.by_family) > 1:
        yield groups_table(scores.by_family, "family")
    if scores.samples > 1:
        yield passes_table(scores)


def differences_table(compared: RunComparison, view: View) -> Table:
    """Return every figure of both runs in a view, with the difference; a star marks an interval that excludes 0."""
    table = Table("figure", "A", "B", "B - A", "", title=view, title_justify="left")
    for difference in compared.comparison.differences:
        if difference.view == view:
            table.add_row(difference.figure, *_difference_cells(difference))
    return table


def changes_table(changes: Sequence[SideChange], view: View, criteria: Sequence[str] = SHOWN) -> Table | None:
    """Return the tasks that pass in one run only, with how many samples pass; None if there are none."""
    changed = [change for change in changes if change.view == view and change.criterion in criteria]
    table = Table("task", "criterion", "A", "B", title=f"tasks that changed sides, {view}", title_justify="left")
    for change in changed:
        sides = (f"{change.a_passed} of {change.a_samples}", f"{change.b_passed} of {change.b_samples}")
        table.add_row(escape(change.task), change.criterion, *sides)
    return table if changed else None


def _difference_cells(difference: Difference) -> tuple[str, str, str, str]:
    sides = cell(difference.figure, difference.a), cell(difference.figure, difference.b)
    return *sides, cell(difference.figure, difference.difference, signed=True), "*" if difference.is_clear else ""


def _figure_cells(views: Views, view: View) -> list[str]:
    return [cell(name, views.view(view).values[name]) for name in SHOWN]


def _tokens(views: Views) -> str:
    return "-" if views.tokens is None else f"{views.tokens:.0f}"
