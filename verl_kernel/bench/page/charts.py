# SPDX-License-Identifier: Apache-2.0
"""The bench's curves: scores over turns and over tokens."""

from __future__ import annotations

from collections.abc import Sequence

from verl_kernel.bench.page.texts import estimate, known
from verl_kernel.figures.record import Estimate, Scores, View
from verl_kernel.reporting.axes import round_marks
from verl_kernel.reporting.charts import Chart, Curve, Point, chart

_VIEWS: tuple[View, ...] = ("last turn", "best of history")
_MOST_MARKS = 9


def charts(scores: Scores) -> list[Chart]:
    """Return correct answers and fast@1.2 over turns, and fast@1.2 over tokens if known; none for a single turn."""
    if len(scores.by_turn) < 2:
        return []
    turns = [float(number) for number in range(1, len(scores.by_turn) + 1)]
    found = [_over_turns(scores, name, turns) for name in ("correct", "fast@1.2")]
    tokens = [known(views.tokens) for views in scores.by_turn]
    spent = [one for one in tokens if one is not None]
    if len(spent) == len(tokens) and spent[-1] > spent[0]:
        found.append(_over_tokens(scores, "fast@1.2", spent))
    return found


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
    return [Point(x, one.value, _said(name, one), one.low, one.high) for x, one in pairs if one.value is not None]


def _said(name: str, one: Estimate) -> str:
    value, interval = estimate(one, is_factor=False)
    return f"{name}: {value}" + (f" ({interval})" if interval else "")


def _band(scores: Scores) -> str:
    return f"band: {100 * scores.confidence:g} % interval over tasks"
