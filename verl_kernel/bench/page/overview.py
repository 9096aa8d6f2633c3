# SPDX-License-Identifier: Apache-2.0
"""The upper part of the page: the header as a list of facts, figures as rows of text, and curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from verl_kernel.bench.page.texts import UNKNOWN, estimate, finite
from verl_kernel.bench.records import BenchTurn, RunHeader
from verl_kernel.bench.score_tables import VIEWS
from verl_kernel.bench.scores import baseline
from verl_kernel.figures.figures import EVERY
from verl_kernel.figures.record import Estimate, Figures, Scores, View, Views
from verl_kernel.reporting.charts import Chart, Curve, Point, chart, round_marks

_SOURCES = {"endpoint": "at an endpoint", "vllm": "served by vLLM", "kernels": "a folder of kernels"}
_CONTEXTS = {
    "concat": "all earlier turns",
    "last": "the last turns",
    "best_window": "the best window of turns",
    "top_w": "the best turns",
}
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
_VIEWS: tuple[View, ...] = ("last turn", "best of history")
_MOST_MARKS = 9
"""Largest number of turns that are named on the horizontal axis."""


def run_facts(header: RunHeader, scores: Scores, turns: Sequence[BenchTurn]) -> dict[str, str]:
    """Return facts by name, in the order of display."""
    facts = {
        "model": f"{header.model}, {_SOURCES[header.source]}",
        "suite": f"{header.suite}, {header.tasks:,} tasks (text hash {header.suite_hash[:12]})",
        "speedup over": f"the reference: {baseline(header, turns)}",
        "device": _device(header, turns),
        "asked for": f"{_count(header.samples, 'sample')} a task, {_count(header.turns, 'turn')} each",
        "answers": _answers(scores),
        "prompts": f"show {_context(header)}",
        "sampling": (
            f"temperature {header.temperature:g}, top-p {header.top_p:g}, "
            f"at most {header.max_tokens:,} tokens, seed {header.seed}"
        ),
        "gym": _pairs(header.gym) or "defaults",
        "reward": _pairs(header.reward) or "defaults",
        "versions": _pairs(header.versions),
    }
    if header.source == "kernels":
        del facts["sampling"], facts["prompts"]
    return facts


def _device(header: RunHeader, turns: Sequence[BenchTurn]) -> str:
    """Return the requested device, and the GPUs that verdicts name."""
    words = {"gpu_name": "{}", "gpu_profile": "clock of a simulated {}"}
    named = {words[key].format(turn.result.env[key]) for turn in turns for key in words if turn.result.env.get(key)}
    return ", ".join([header.device, *sorted(named)])


def _context(header: RunHeader) -> str:
    words = _CONTEXTS.get(header.context, header.context)
    return words if header.window is None else f"{words}, at most {header.window} (`{header.context}`)"


def _answers(scores: Scores) -> str:
    parts = [f"{scores.answers:,} judged" if not scores.lost else f"{scores.answers - scores.lost:,} judged"]
    parts += [f"{scores.lost:,} lost by the gym (in no figure)"] * bool(scores.lost)
    parts += [f"{scores.missing:,} samples without any answer (each counts as a failure)"] * bool(scores.missing)
    parts += [f"{scores.ended_early:,} samples ended before the last turn"] * bool(scores.ended_early)
    return ", ".join(parts)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' if number != 1 else ''}"


def _pairs(values: Mapping[str, object]) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items())


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
        ScoreRow(name, figure.meaning, tuple(_cell(view, name) for view in views)) for name, figure in EVERY.items()
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
    passes = [entry for entry in scores.passes if entry.view == "best of history"]
    ks = tuple(sorted({entry.k for entry in passes}))
    cells: dict[str, dict[int, Cell]] = {}
    for entry in passes:
        cells.setdefault(entry.criterion, {})[entry.k] = estimate(entry.estimate, is_factor=False)
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


def charts(scores: Scores) -> list[Chart]:
    """Return correct answers and fast@1.2 over turns, and fast@1.2 over tokens if known; none for a single turn."""
    if len(scores.by_turn) < 2:
        return []
    turns = [float(number) for number in range(1, len(scores.by_turn) + 1)]
    plots = [_over_turns(scores, name, turns) for name in ("correct", "fast@1.2")]
    tokens = [finite(views.tokens) for views in scores.by_turn]
    counted = [count for count in tokens if count is not None]
    if len(counted) == len(tokens) and counted[-1] > counted[0]:
        plots.append(_over_tokens(scores, "fast@1.2", counted))
    return plots


def _over_turns(scores: Scores, figure: str, turns: Sequence[float]) -> Chart:
    marks = turns[:: -(-len(turns) // _MOST_MARKS)]
    return chart(f"{figure}, over turns", "turn", _curves(scores, figure, turns), marks, band=_band(scores))


def _over_tokens(scores: Scores, figure: str, tokens: Sequence[float]) -> Chart:
    curves, label = _curves(scores, figure, tokens), "tokens of a sample, prompts and answers"
    marks = round_marks(0.0, tokens[-1], whole=True)
    return chart(f"{figure}, over tokens", label, curves, marks, start=0.0, band=_band(scores))


def _curves(scores: Scores, figure: str, xs: Sequence[float]) -> list[Curve]:
    """Return the last turn's curve, dashed, and the best turn's: both are equal at the first turn and often later."""
    last, best = ([views.view(view).values[figure] for views in scores.by_turn] for view in _VIEWS)
    return [
        Curve(_VIEWS[0], _points(_VIEWS[0], last, xs), "dashed", tone=1),
        Curve(_VIEWS[1], _points(_VIEWS[1], best, xs), "line", tone=2),
    ]


def _points(name: str, estimates: Sequence[Estimate], xs: Sequence[float]) -> list[Point]:
    pairs = zip(xs, estimates, strict=True)
    return [
        Point(x, figure.value, _point_text(name, figure), figure.low, figure.high)
        for x, figure in pairs
        if figure.value is not None
    ]


def _point_text(name: str, figure: Estimate) -> str:
    value, interval = estimate(figure, is_factor=False)
    return f"{name}: {value}" + (f" ({interval})" if interval else "")


def _band(scores: Scores) -> str:
    return f"band: {100 * scores.confidence:g} % interval over tasks"
