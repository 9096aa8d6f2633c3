# SPDX-License-Identifier: Apache-2.0
"""Plots the curves of one or several runs as a figure with two panels: over turns and over tokens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from verl_kernel.bench.curves import Curves, Point
from verl_kernel.reporting.plots import draw_line, drawing

_LINES = (("last", "-", "last turn"), ("best", "--", "best of history"))


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


def _draw(axis: Any, points: Sequence[Point], colour: str, name: str, *, is_step: bool) -> None:
    """Draw both lines of a run with their intervals."""
    for key, style, words in _LINES:
        known = [(point.at, one) for point in points if (one := getattr(point, key)).value is not None]
        if not known:
            continue
        has_band = all(one.low is not None for _, one in known)
        band = ([one.low for _, one in known], [one.high for _, one in known]) if has_band else None
        at, values = [x for x, _ in known], [one.value for _, one in known]
        draw_line(axis, at, values, band, colour=colour, style=style, label=f"{name}, {words}", is_step=is_step)
