# SPDX-License-Identifier: Apache-2.0
"""Curves over turns and over tokens, laid out for an SVG inside the page; colours are the style sheet's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from verl_kernel.bench.page.texts import estimate, known
from verl_kernel.scores.record import Estimate, Scores, View

WIDTH, HEIGHT = 360, 220
LEFT, RIGHT, TOP, BOTTOM = 40, 18, 12, 34
_VIEWS: tuple[View, ...] = ("last turn", "best of history")
_MOST_MARKS = 9


@dataclass(frozen=True)
class Mark:
    """A place on an axis."""

    at: float
    text: str


@dataclass(frozen=True)
class Dot:
    """A point of a line, with what it says."""

    x: float
    y: float
    text: str


@dataclass(frozen=True)
class Line:
    """A line with its band."""

    name: str
    dots: tuple[Dot, ...]
    path: str
    band: str
    """Corners of the band between the ends of the intervals; empty without intervals."""


@dataclass(frozen=True)
class Chart:
    """One panel; coordinates are pixels of a picture of WIDTH times HEIGHT."""

    title: str
    x_label: str
    x_marks: tuple[Mark, ...]
    y_marks: tuple[Mark, ...]
    lines: tuple[Line, ...]


def charts(scores: Scores) -> list[Chart]:
    """Correct answers and fast@1.2 over turns, and fast@1.2 over tokens where they are known; none of a single turn."""
    if len(scores.by_turn) < 2:
        return []
    turns = [float(number) for number in range(1, len(scores.by_turn) + 1)]
    found = [_chart(scores, name, "turn", turns) for name in ("correct", "fast@1.2 (>=)")]
    tokens = [known(views.tokens) for views in scores.by_turn]
    spent = [one for one in tokens if one is not None]
    if len(spent) == len(tokens) and spent[-1] > spent[0]:
        found.append(_chart(scores, "fast@1.2 (>=)", "tokens of a sample, prompts and answers", spent))
    return found


def _chart(scores: Scores, figure: str, x_label: str, xs: Sequence[float]) -> Chart:
    values = {view: [views.view(view).values[figure] for views in scores.by_turn] for view in _VIEWS}
    top = _top([one for estimates in values.values() for one in estimates])
    start = 0.0 if x_label != "turn" else xs[0]
    places = [_scaled(x, start, xs[-1], LEFT, WIDTH - RIGHT) for x in xs]
    marks = xs[:: -(-len(xs) // _MOST_MARKS)] if x_label == "turn" else [xs[-1] * part / 4 for part in range(5)]
    return Chart(
        title=f"{figure}, over {x_label.split(' ')[0]}{'s' if x_label == 'turn' else ''}",
        x_label=x_label,
        x_marks=tuple(Mark(_scaled(x, start, xs[-1], LEFT, WIDTH - RIGHT), _count(x)) for x in marks),
        y_marks=tuple(Mark(_height(top * part / 4, top), f"{top * part / 4:.0%}") for part in range(5)),
        lines=tuple(_line(view, estimates, places, top) for view, estimates in values.items()),
    )


def _line(name: str, estimates: Sequence[Estimate], places: Sequence[float], top: float) -> Line:
    pairs = [(x, one) for x, one in zip(places, estimates, strict=True) if one.value is not None]
    dots = [Dot(x, _height(one.value or 0.0, top), _said(name, one)) for x, one in pairs]
    ends = [(x, one.low, one.high) for x, one in pairs if one.low is not None and one.high is not None]
    upper = [(x, _height(high, top)) for x, _, high in ends]
    lower = [(x, _height(low, top)) for x, low, _ in reversed(ends)]
    return Line(name, tuple(dots), _points([(dot.x, dot.y) for dot in dots]), _points([*upper, *lower]))


def _said(name: str, one: Estimate) -> str:
    value, interval = estimate(one, is_factor=False)
    return f"{name}: {value}" + (f" ({interval})" if interval else "")


def _top(estimates: Sequence[Estimate]) -> float:
    """End of the axis: the next of 20, 40, ... 100 %."""
    highest = max((one.high or one.value or 0.0 for one in estimates), default=0.0)
    return min(1.0, 0.2 * max(1, -(-round(highest * 1000) // 200)))


def _scaled(value: float, low: float, high: float, start: float, end: float) -> float:
    return round(start + (value - low) / (high - low) * (end - start), 1)


def _height(value: float, top: float) -> float:
    return round(HEIGHT - BOTTOM - value / top * (HEIGHT - BOTTOM - TOP), 1)


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:g},{y:g}" for x, y in points)


def _count(value: float) -> str:
    return f"{value:.0f}" if value < 10_000 else f"{value / 1000:.0f}k"
