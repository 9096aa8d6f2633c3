# SPDX-License-Identifier: Apache-2.0
"""Figures drawn by matplotlib: their common setup, style and saving."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal


@contextmanager
def drawing(
    path: Path, rows: int = 1, columns: int = 1, *, grid: Literal["both", "x", "y"] = "both", **options: Any
) -> Iterator[tuple[Any, Any]]:
    """Open a figure, and save it in the format of the path's suffix unless the block raises; equal data give equal SVG.

    Args:
        path: path of the file.
        rows: of panels.
        columns: of panels.
        grid: axes along which the panels have grid lines.
        options: further arguments of `pyplot.subplots`, such as `figsize` in inches.

    Yields:
        The figure, and its panel or an array of them.

    Raises:
        ModuleNotFoundError: matplotlib is not installed (extra `plot`).
        ValueError: matplotlib cannot write files of that suffix.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with matplotlib.rc_context({"svg.hashsalt": "verl-kernel", "svg.fonttype": "none"}):
        figure, axes = pyplot.subplots(rows, columns, layout="constrained", **options)
        try:
            yield figure, axes
            for axis in figure.axes:
                if axis.axison:
                    axis.grid(alpha=0.3, axis=grid)
            figure.savefig(path, dpi=120, metadata={"Date": None} if path.suffix == ".svg" else None)
        finally:
            pyplot.close(figure)


def draw_line(
    axis: Any,
    xs: Sequence[float],
    values: Sequence[float],
    band: tuple[Sequence[float], Sequence[float]] | None,
    *,
    colour: str,
    style: str = "-",
    label: str,
    is_step: bool = False,
) -> None:
    """Draw a line, and if it has intervals the band between their low and high ends."""
    axis.plot(xs, values, style, color=colour, label=label, drawstyle="steps-post" if is_step else None)
    if band is not None:
        axis.fill_between(xs, *band, color=colour, alpha=0.1, linewidth=0, step="post" if is_step else None)
