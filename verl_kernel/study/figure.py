# SPDX-License-Identifier: Apache-2.0
"""The study's figure: a panel per measure, a line per arm, its 95 % interval over seeds as a band."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from verl_kernel.study.summary import MEASURES, Row, curve

_SMOOTH = 3


def plot(rows: Sequence[Row], titles: Mapping[str, str], path: Path, heading: str) -> None:
    """Save the figure.

    Args:
        rows: the study's rows.
        titles: arm to its title, in the legend's order.
        path: of the PNG.
        heading: over the figure; names the source of times.

    Raises:
        ModuleNotFoundError: matplotlib is not installed (extra `plot`).
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 3, figsize=(13, 7.5), layout="constrained")
    for axis, measure in zip(axes.flat, MEASURES, strict=False):
        for number, (arm, title) in enumerate(titles.items()):
            _line(axis, rows, arm, measure, title, f"C{number}")
        axis.set_title(measure)
        axis.set_xlabel("step")
        axis.grid(alpha=0.3)
    legend = axes.flat[len(MEASURES)]
    legend.axis("off")
    legend.legend(*axes.flat[0].get_legend_handles_labels(), loc="center", frameon=False)
    figure.suptitle(f"{heading}; mean of {_SMOOTH} steps, band: 95 % interval over seeds")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _line(axis: Any, rows: Sequence[Row], arm: str, measure: str, title: str, colour: str) -> None:
    points = curve(rows, arm, measure)
    if not points:
        return
    steps, intervals = list(points), list(points.values())
    means = _smooth([found.mean for found in intervals])
    halves = _smooth([found.half or 0.0 for found in intervals])
    axis.plot(steps, means, color=colour, label=title)
    low, high = ([m + sign * h for m, h in zip(means, halves, strict=True)] for sign in (-1, 1))
    axis.fill_between(steps, low, high, color=colour, alpha=0.1, linewidth=0)


def _smooth(values: Sequence[float]) -> list[float]:
    """Mean of each value and the ones before it, up to `_SMOOTH` in all."""
    windows = [values[max(0, end - _SMOOTH) : end] for end in range(1, len(values) + 1)]
    return [sum(window) / len(window) for window in windows]
