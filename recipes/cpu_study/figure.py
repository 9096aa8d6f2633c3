# SPDX-License-Identifier: Apache-2.0
"""Plots a study: a panel of curves per measure (bands: 95 % interval over seeds), and the effects compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recipes.cpu_study.comparisons import effect
from recipes.cpu_study.plan import Comparison
from recipes.cpu_study.summary import MEASURES, Row, curve
from verl_kernel.reporting.plots import draw_line, drawing

SMOOTH = 3
_COLOURS = 10
_STYLES = ("-", "--", ":")
_MARGIN = 0.5
"""Margin of a panel above and below its lines, as a part of their range."""


def plot(rows: Sequence[Row], titles: Mapping[str, str], path: Path, heading: str) -> None:
    """Save the curves.

    Args:
        rows: the study's rows.
        titles: arm to its title, in the legend's order.
        path: path of the PNG.
        heading: heading of the figure; names the source of times.

    Raises:
        ModuleNotFoundError: matplotlib is not installed (extra `plot`).
    """
    with drawing(path, 2, 3, figsize=(13, 7.5)) as (figure, axes):
        for axis, measure in zip(axes.flat, MEASURES, strict=False):
            for number, (arm, title) in enumerate(titles.items()):
                _line(axis, rows, arm, measure, title, number)
            _look_at_lines(axis)
            axis.set_title(measure)
            axis.set_xlabel("step")
        legend = axes.flat[len(MEASURES)]
        legend.axis("off")
        legend.legend(*axes.flat[0].get_legend_handles_labels(), loc="center", frameon=False)
        figure.suptitle(f"{heading}; mean of {SMOOTH} steps, band: 95 % interval over seeds")


def plot_effects(rows: Sequence[Row], comparisons: Sequence[Comparison], path: Path, heading: str) -> None:
    """Save each comparison's effect with Student's interval, its seeds and what was expected.

    Args:
        rows: the study's rows.
        comparisons: in the figure's order; those without a finished seed are left out, and no
            figure is made if none is left.
        path: path of the PNG.
        heading: heading of the figure.

    Raises:
        ModuleNotFoundError: matplotlib is not installed (extra `plot`).
    """
    known = [(one, found) for one in comparisons if (found := effect(rows, one.arms, one.figure)) is not None]
    if not known:
        return
    with drawing(path, figsize=(10, 1.4 + 0.45 * len(known)), grid="x") as (_, axis):
        for place, (one, found) in enumerate(known):
            seeds, mean, half = len(found.differences), found.seen.mean, found.seen.half or 0.0
            axis.plot([mean - half, mean + half], [place, place], color="C0", label="" if place else "95 % interval")
            axis.plot(found.differences, [place] * seeds, ".", color="C0", alpha=0.4, label="" if place else "a seed")
            axis.plot(mean, place, "o", color="C0", label="" if place else "mean")
            axis.plot(one.expected, place, "D", color="C1", fillstyle="none", label="" if place else "expected")
        axis.set_yticks(range(len(known)), [f"{one.title}: {one.figure}" for one, _ in known])
        axis.invert_yaxis()
        axis.axvline(0.0, color="grey", linewidth=0.8)
        axis.legend(frameon=False)
        axis.set_title(f"{heading}: differences on the validation's tasks")


def _line(axis: Any, rows: Sequence[Row], arm: str, measure: str, title: str, number: int) -> None:
    points = curve(rows, arm, measure)
    if not points:
        return
    steps, intervals = list(points), list(points.values())
    means = smooth([found.mean for found in intervals])
    halves = smooth([found.half or 0.0 for found in intervals])
    colour, style = f"C{number % _COLOURS}", _STYLES[number // _COLOURS % len(_STYLES)]
    low, high = ([m + sign * h for m, h in zip(means, halves, strict=True)] for sign in (-1, 1))
    draw_line(axis, steps, means, (low, high), colour=colour, style=style, label=title)


def _look_at_lines(axis: Any) -> None:
    """Fit the axis to the means; the intervals of two or three seeds may leave the panel."""
    means = [value for line in axis.lines for value in line.get_ydata()]
    if means:
        margin = _MARGIN * (max(means) - min(means)) or 1.0
        axis.set_ylim(min(means) - margin, max(means) + margin)


def smooth(values: Sequence[float]) -> list[float]:
    """Return the mean of each value and its predecessors, over at most `SMOOTH` values."""
    windows = [values[max(0, end - SMOOTH) : end] for end in range(1, len(values) + 1)]
    return [sum(window) / len(window) for window in windows]
