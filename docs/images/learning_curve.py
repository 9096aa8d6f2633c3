# SPDX-License-Identifier: Apache-2.0
"""Draw the README's curve from the study's recorded runs: python docs/images/learning_curve.py OUT.svg."""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib
import pandas as pd

matplotlib.use("svg")
from matplotlib import pyplot

ROOT = Path(__file__).parents[2]
ARM = "trloo_pr_prs"
CURVES = {
    "kernel/correct_rate": "correct",
    "kernel/fast@1.2": "correct and 1.2x faster (simulated time)",
    "kernel/hack_rate": "decoys and hacks",
}


def draw(path: Path) -> None:
    """Mean of the seeds as a line, lowest to highest seed as a band."""
    runs = pd.read_json(ROOT / "recipes/cpu_study/first/study.jsonl", lines=True)
    steps = runs[runs["arm"] == ARM].groupby("step")
    matplotlib.rcParams["svg.hashsalt"] = "verl-kernel"
    figure, axis = pyplot.subplots(figsize=(7, 2.9), layout="constrained")
    for (key, title), colour in zip(CURVES.items(), ("C0", "C2", "C3"), strict=True):
        mean, low, high = (getattr(steps[key], name)() * 100 for name in ("mean", "min", "max"))
        axis.plot(mean.index, mean, color=colour, label=title)
        axis.fill_between(mean.index, low, high, color=colour, alpha=0.15, linewidth=0)
    axis.set(xlabel="training step (128 kernels each)", ylabel="% of kernels", xlim=(1, 16), ylim=(0, 100))
    axis.grid(alpha=0.3)
    axis.legend(loc="center right", frameon=False, bbox_to_anchor=(1, 0.38))
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    out = Path(sys.argv[1])
    out.parent.mkdir(parents=True, exist_ok=True)
    draw(out)
