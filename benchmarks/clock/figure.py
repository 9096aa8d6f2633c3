# SPDX-License-Identifier: Apache-2.0
"""A figure of all ratios of predicted to other times, smallest first, by level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from verl_kernel.reporting.plots import drawing


def draw(ratios: Mapping[str, Sequence[float]], path: Path) -> None:
    """Write an SVG; the same ratios give the same file."""
    with drawing(path, figsize=(7.0, 3.6)) as (_, axes):
        for level, values in ratios.items():
            shares = [(place + 0.5) / len(values) for place in range(len(values))]
            axes.plot(shares, sorted(values), marker=".", linewidth=0.8, label=f"{level} ({len(values)} programs)")
        axes.set_yscale("log")
        axes.set_yticks([0.5, 0.8, 1.0, 1.25, 1.5, 2.0], labels=["0.5", "0.8", "1", "1.25", "1.5", "2"])
        axes.set_yticks([], minor=True)
        for line in (0.8, 1.0, 1.25):
            axes.axhline(line, color="0.8", linewidth=0.8, zorder=0)
        axes.set_xlabel("share of programs")
        axes.set_ylabel("predicted / published time")
        axes.legend(frameon=False)
