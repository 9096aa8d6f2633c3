# SPDX-License-Identifier: Apache-2.0
"""Lays curves out for an SVG in a page, of a bench or of a training run; the style sheet defines the colours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

_TOPS = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
"""Upper ends of an axis of shares."""
WIDTH, HEIGHT = 360, 220
"""Size of a panel, in pixels."""
LEFT, RIGHT, TOP, BOTTOM = 46, 18, 12, 34
"""Margins of a panel for the labels of its axes, in pixels."""
_FEW = 12
"""Largest number of points of a line for which each point gets a large dot and is read aloud."""
Kind = Literal["line", "dashed", "points"]
Pixel = tuple[float, float]


def round_marks(low: float, high: float, count: int = 5, *, whole: bool = False) -> list[float]:
    """Return evenly spaced round numbers between two ends, about `count` at most; only whole ones if `whole`."""
    step = _round_step((high - low) / max(1, count - 1), whole)
    # A quotient that should be a whole number may miss it by rounding.
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def around(values: Sequence[float], count: int = 5) -> list[float]:
    """Return round numbers from 0, or from below the lowest value, to at least the highest one."""
    low, high = min([0.0, *values]), max([0.0, *values])
    step = _round_step((high - low) / max(1, count - 1), whole=False) if high > low else 1.0
    first, last = math.floor(low / step + 1e-9), max(1, math.ceil(high / step - 1e-9))
    return [number * step for number in range(first, last + 1)]


def of_shares(values: Sequence[float]) -> list[float]:
    """Return quarters of the next of 5, 10, 20, 40, ... 100 % above the values."""
    highest = max(values, default=0.0)
    top = next((candidate for candidate in _TOPS if round(highest, 3) <= candidate), 1.0)
    return [top * part / 4 for part in range(5)]


def _round_step(minimum: float, whole: bool) -> float:
    """Return the next of 1, 2, 5, 10, ... times a power of ten."""
    if whole and minimum <= 1:
        return 1.0
    power = 10.0 ** math.floor(math.log10(minimum)) if minimum > 0 else 1.0
    return next(power * part for part in (1, 2, 5, 10) if power * part >= minimum * (1 - 1e-9))


@dataclass(frozen=True)
class Point:
    """A value of a curve, with the ends of its interval if it has one."""

    x: float
    y: float
    text: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Curve:
    """The input for a line."""

    name: str
    points: Sequence[Point]
    kind: Kind = "line"
    """Dashed lines lie on top, so that an equal line below stays visible; `points` draws no line between the points."""
    tone: int = 1
    """Number of the style sheet's colour, from 1 to 6."""
    meaning: str = ""
    """Text that appears over the legend's entry."""


@dataclass(frozen=True)
class Mark:
    """A place on an axis."""

    at: float
    text: str


@dataclass(frozen=True)
class Dot:
    """A point of a line, with its text."""

    x: float
    y: float
    text: str


@dataclass(frozen=True)
class DrawnLine:
    """A line with its band."""

    name: str
    dots: tuple[Dot, ...]
    path: str
    band: str
    """Corners of the band between the ends of the intervals; empty without intervals."""
    kind: Kind
    tone: int
    meaning: str

    @property
    def spoken(self) -> str:
        """Return the text that a screen reader reads in place of the line."""
        dots = self.dots if len(self.dots) <= _FEW else (self.dots[0], self.dots[-1])
        return "; ".join(dot.text for dot in dots)

    @property
    def radius(self) -> float:
        """Return the radius of the line's dots."""
        return 3.0 if len(self.dots) <= _FEW or self.kind == "points" else 1.4


@dataclass(frozen=True)
class Chart:
    """One panel; coordinates are pixels of a picture of WIDTH times HEIGHT."""

    title: str
    x_label: str
    x_marks: tuple[Mark, ...]
    y_marks: tuple[Mark, ...]
    lines: tuple[DrawnLine, ...]
    """Lines in the order of the legend."""
    band: str
    """Meaning of the bands; empty if there are none."""

    @property
    def back_to_front(self) -> list[DrawnLine]:
        """Return the lines from back to front: dashed ones and single points last."""
        return sorted(self.lines, key=lambda line: line.kind != "line")


def chart(
    title: str,
    x_label: str,
    curves: Sequence[Curve],
    x_marks: Sequence[float],
    *,
    start: float | None = None,
    shares: bool = True,
    band: str = "",
) -> Chart:
    """Lay a panel out.

    Args:
        title: title of the panel.
        x_label: label of its horizontal axis.
        curves: in the order of the legend; those without points are left out.
        x_marks: values that are named on the horizontal axis.
        start: start of the horizontal axis; the first point by default.
        shares: whether values are shares of 1.
        band: meaning of the bands between the ends of intervals.
    """
    curves = [curve for curve in curves if curve.points]
    points = [point for curve in curves for point in curve.points]
    xs, values = [point.x for point in points], [end for point in points for end in _ends(point)]
    marks = of_shares(values) if shares else around(values)
    across = _Scale(min(xs, default=0.0) if start is None else start, max(xs, default=1.0), LEFT, WIDTH - RIGHT)
    up = _Scale(marks[0], marks[-1], HEIGHT - BOTTOM, TOP)
    lines = tuple(_line(curve, across, up) for curve in curves)
    return Chart(
        title,
        x_label,
        tuple(Mark(across(x), _count(x)) for x in x_marks),
        tuple(Mark(up(y), _share(y) if shares else f"{y:.6g}") for y in marks),
        lines,
        band if any(line.band for line in lines) else "",
    )


@dataclass(frozen=True)
class _Scale:
    """Converts values to pixels."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        part = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return round(self.start + part * (self.end - self.start), 1)


def _line(curve: Curve, across: _Scale, up: _Scale) -> DrawnLine:
    dots = tuple(Dot(across(point.x), up(point.y), point.text) for point in curve.points)
    ends = [
        (across(point.x), point.low, point.high)
        for point in curve.points
        if point.low is not None and point.high is not None
    ]
    corners = [*((x, up(high)) for x, _, high in ends), *((x, up(low)) for x, low, _ in reversed(ends))]
    path = "" if curve.kind == "points" else _svg_path([(dot.x, dot.y) for dot in dots])
    return DrawnLine(curve.name, dots, path, _svg_path(corners), curve.kind, curve.tone, curve.meaning)


def _ends(point: Point) -> list[float]:
    return [value for value in (point.y, point.low, point.high) if value is not None]


def _svg_path(pixels: Sequence[Pixel]) -> str:
    return " ".join(f"{x:g},{y:g}" for x, y in pixels)


def _share(value: float) -> str:
    return f"{100 * value:.3g}%"


def _count(value: float) -> str:
    return f"{value:.0f}" if value < 10_000 else f"{value / 1000:g}k"
