# SPDX-License-Identifier: Apache-2.0
"""The figures of a run as rows of text: a few headlines, all figures by view, and figures by level and family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from verl_kernel.bench.page.texts import UNKNOWN, estimate
from verl_kernel.bench.score_tables import VIEWS
from verl_kernel.figures.figures import FIGURES
from verl_kernel.figures.record import Estimate, Figures, Scores, View, Views

Cell = tuple[str, str]
"""A figure and its interval."""
_HEADLINES: tuple[tuple[str, View], ...] = (
    ("correct", "last turn"),
    ("fast@1.2", "last turn"),
    ("fast@1.2", "best of history"),
    ("fast@1.2 (sure)", "best of history"),
    ("speedup (all)", "best of history"),
)
_BY_GROUP = ("correct", "fast@1", "fast@1.2", "fast@1.2 (sure)", "speedup (correct)", "speedup (all)")


@dataclass(frozen=True)
class ScoreRow:
    """A line of a table of figures."""

    name: str
    meaning: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class ScoreTable:
    """Figures of one view, by group of tasks."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[ScoreRow, ...]


def headlines(scores: Scores) -> list[ScoreRow]:
    """Return the figures that people quote; `meaning` names the view."""
    return [ScoreRow(name, view, (_cell(scores.overall.view(view), name),)) for name, view in _HEADLINES]


def all_figures(scores: Scores) -> list[ScoreRow]:
    """Return every figure that is known in some view, with a cell for each of `VIEWS`."""
    views = [scores.overall.view(view) for view in VIEWS]
    rows = [
        ScoreRow(name, figure.meaning, tuple(_cell(one, name) for one in views)) for name, figure in FIGURES.items()
    ]
    return [row for row in rows if any(text != UNKNOWN for text, _ in row.cells)]


def by_group(scores: Scores) -> list[ScoreTable]:
    """Return the best of history by level, family and turn; by turn only where the run has several turns."""
    tables = [_table("level", scores.by_level), _table("family", scores.by_family)]
    if len(scores.by_turn) > 1:
        tables.append(_table("turn", {str(number): views for number, views in enumerate(scores.by_turn, 1)}))
    return [table for table in tables if table.rows]


def pass_at_k(scores: Scores) -> ScoreTable:
    """Return pass@k of single samples' best answers, by criterion; without rows if there is only one sample."""
    found = [one for one in scores.passes if one.view == "best of history"]
    ks = tuple(sorted({one.k for one in found}))
    cells: dict[str, dict[int, Cell]] = {}
    for one in found:
        cells.setdefault(one.criterion, {})[one.k] = estimate(one.estimate, is_factor=False)
    rows = [
        ScoreRow(name, "", tuple(by_k.get(k, (UNKNOWN, "")) for k in ks))
        for name, by_k in cells.items()
        if any(by_k.get(k, (UNKNOWN, ""))[0] != UNKNOWN for k in ks)
    ]
    return ScoreTable("pass@k", tuple(f"k = {k}" for k in ks), tuple(rows) if scores.samples > 1 else ())


def _table(title: str, groups: Mapping[str, Views]) -> ScoreTable:
    rows = [
        ScoreRow(name, "", tuple(_cell(views.best_of_history, figure) for figure in _BY_GROUP))
        for name, views in groups.items()
    ]
    return ScoreTable(title, _BY_GROUP, tuple(rows))


def _cell(figures: Figures, name: str) -> Cell:
    return estimate(figures.values.get(name, Estimate(value=None)), is_factor=name.startswith("speedup"))
