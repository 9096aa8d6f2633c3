# SPDX-License-Identifier: Apache-2.0
"""A run's steps as verl's `file` logger wrote them (one JSON object a line), as a table and as a curve.

Every column is a metric of the step's log under its own name; a metric that was not logged is shown as "-".
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from verl_kernel.errors import DataError

COLUMNS = {
    "reward": "critic/score/mean",
    "correct": "kernel/correct_rate",
    "fast@1.2": "kernel/fast@1.2",
    "coverage": "kernel/time_coverage/mean",
    "decoy": "kernel/decoy_rate",
    "PRS rejected": "prs/rejected_turns",
    "seconds": "timing_s/step",
}

Step = dict[str, Any]


def read_steps(path: Path) -> list[Step]:
    """Return the training steps in a metrics file, in order; lines still being written are left out.

    Raises:
        DataError: there is no such file.
    """
    if not path.is_file():
        raise DataError(
            f"{path} does not exist: run the trainer with `file` in trainer.logger and VERL_FILE_LOGGER_PATH"
        )
    steps = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        if "training/global_step" in record["data"]:
            steps.append({"step": record["step"], **record["data"]})
    return steps


def steps_table(steps: Sequence[Step], title: str) -> Table:
    """Lay the steps out as a table with one row each."""
    table = Table(title=title, title_justify="left")
    for name in ("step", *COLUMNS):
        table.add_column(name, justify="right")
    for step in steps:
        table.add_row(str(step["step"]), *(_cell(step.get(key)) for key in COLUMNS.values()))
    return table


def plot_steps(steps: Sequence[Step], path: Path, title: str) -> None:
    """Save reward, correct rate, fast@1.2 and coverage against steps as a PNG.

    Raises:
        ModuleNotFoundError: matplotlib is not installed (extra `plot`).
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 2, figsize=(9, 6), sharex=True, layout="constrained")
    for axis, name in zip(axes.flat, ("reward", "correct", "fast@1.2", "coverage"), strict=True):
        points = [(step["step"], step[COLUMNS[name]]) for step in steps if COLUMNS[name] in step]
        axis.plot([x for x, _ in points], [y for _, y in points], marker=".")
        axis.set_title(name)
        axis.grid(alpha=0.3)
    for axis in axes[-1]:
        axis.set_xlabel("step")
    figure.suptitle(title)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) and not value.is_integer() else f"{value:.0f}"
