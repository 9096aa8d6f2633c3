# SPDX-License-Identifier: Apache-2.0
"""Draw the README's curve from the steps of a recorded `make train`: python docs/images/learning_curve.py OUT.svg."""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

from verl_kernel.reporting.plots import drawing

ROOT = Path(__file__).parents[2]
SMOOTH = 3
CURVES = {
    "kernel/correct_rate": "correct",
    "kernel/fast@1.2": "correct and 1.2x faster (simulated time)",
    "kernel/hack_rate": "decoys and hacks",
}


def draw(path: Path) -> None:
    """Each step as a dot, the mean of `SMOOTH` steps as a line."""
    steps = pd.read_json(ROOT / "data/quickstart/steps.jsonl", lines=True).set_index("step")
    with drawing(path, figsize=(7, 2.9)) as (_, axis):
        for (key, title), colour in zip(CURVES.items(), ("C0", "C2", "C3"), strict=True):
            share = steps[key] * 100
            axis.plot(share.index, share.rolling(SMOOTH, min_periods=1).mean(), color=colour, label=title)
            axis.plot(share.index, share, ".", color=colour, alpha=0.3)
        axis.set(
            xlabel="training step (128 kernels each)", ylabel="% of kernels", xlim=(1, steps.index.max()), ylim=(0, 100)
        )
        axis.legend(loc="upper left", frameon=False)


if __name__ == "__main__":
    out = Path(sys.argv[1])
    out.parent.mkdir(parents=True, exist_ok=True)
    draw(out)
