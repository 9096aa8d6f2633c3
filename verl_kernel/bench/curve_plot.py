# SPDX-License-Identifier: Apache-2.0
"""The curves of one or several runs as a figure with two panels: over turns and over tokens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from verl_kernel.bench.curves import Curves, Point

_LINES = (("last", "-", "last turn"), ("best", "--", "best of history"))


def title(runs: Sequence[Curves]) -> str:
    """The figure that the runs are shown by, and where its times come from."""
    if not runs:
        return ""
    return ", ".join([runs[0].figure, *dict.fromkeys(run.times for run in runs if run.times)])


def plot_curves(runs: Sequence[Curves], path: Path) -> None:
    """Save the figure in the format of the path's suffix; equal curves give equal SVG files.

    Raises:
        ModuleNotFoundError: matplotlib is not installed (extra `plot`).
        ValueError: matplotlib cannot write files of that suffix.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with matplotlib.rc_context({"svg.hashsalt": "verl-kernel", "svg.fonttype": "none"}):
        figure, (turns, tokens) = pyplot.subplots(1, 2, figsize=(11, 4.2), sharey=True, layout="constrained")
        for number, run in enumerate(runs):
            _draw(turns, run.by_turn, f"C{number}", run.name, step=False)
            _draw(tokens, run.by_tokens, f"C{number}", run.name, step=True)
        turns.set(xlabel="turn", ylabel=title(runs))
        turns.xaxis.get_major_locator().set_params(integer=True)
        tokens.set(xlabel="tokens of a sample, prompts and answers of all turns")
        handles, labels = turns.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=max(len(runs), 1), fontsize=8)
        for axis in (turns, tokens):
            axis.grid(alpha=0.3)
        figure.savefig(path, dpi=120, metadata={"Date": None} if path.suffix == ".svg" else None)
        pyplot.close(figure)


def _draw(axis: Any, points: Sequence[Point], color: str, name: str, *, step: bool) -> None:
    """Both lines of a run with their intervals."""
    for key, style, words in _LINES:
        known = [(point.at, getattr(point, key)) for point in points if getattr(point, key).value is not None]
        if not known:
            continue
        at, values = [x for x, _ in known], [one.value for _, one in known]
        axis.plot(at, values, style, color=color, label=f"{name}, {words}", drawstyle="steps-post" if step else None)
        if all(one.low is not None for _, one in known):
            low, high = [one.low for _, one in known], [one.high for _, one in known]
            axis.fill_between(at, low, high, color=color, alpha=0.1, linewidth=0, step="post" if step else None)
