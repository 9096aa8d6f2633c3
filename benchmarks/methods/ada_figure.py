# SPDX-License-Identifier: Apache-2.0
"""Figure and table of `ada.py`'s runs, by judge calls: mean over seeds, Student's 95 % interval.

python benchmarks/methods/ada_figure.py
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ada import ARMS
from figure_files import publish

from recipes.cpu_study.summary import Interval, interval
from verl_kernel.reporting.plots import drawing

Row = dict[str, Any]


def runs_of(rows: Sequence[Row], arm: str) -> list[list[Row]]:
    """An arm's rows, a list per seed."""
    own = [row for row in rows if row["arm"] == arm]
    return [[row for row in own if row["seed"] == seed] for seed in sorted({row["seed"] for row in own})]


def evaluations(rows: Sequence[Row], arm: str, key: str) -> list[tuple[float, Interval]]:
    """Mean calls and the measure at each evaluation that every seed has."""
    runs = [[row for row in run if key in row] for run in runs_of(rows, arm)]
    return [
        (sum(row["calls"] for row in at) / len(at), interval([row[key] for row in at]))
        for at in zip(*runs, strict=False)
    ]


def per_run(rows: Sequence[Row], arm: str, key: str) -> Interval:
    """The mean of a measure over a run's steps, over seeds."""
    return interval([_mean([row[key] for row in run if "step" in row]) for run in runs_of(rows, arm)])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _range(calls: Sequence[int]) -> str:
    return str(calls[0]) if min(calls) == max(calls) else f"{min(calls)} to {max(calls)}"


def draw(rows: Sequence[Row], path: Path) -> None:
    with drawing(path, 1, 2, figsize=(12, 4.5)) as (figure, (left, right)):
        for number, (arm, (title, _, _)) in enumerate(ARMS.items()):
            points = evaluations(rows, arm, "eval_positive")
            if not points:
                continue
            left.errorbar(
                [calls for calls, _ in points], [found.mean for _, found in points],
                yerr=[found.half or 0.0 for _, found in points], color=f"C{number}", label=title, capsize=2,
            )  # fmt: skip
            flat = per_run(rows, arm, "flat")
            right.bar(number, flat.mean, yerr=flat.half or 0.0, color=f"C{number}", capsize=3)
        left.set(xlabel="judge calls", ylabel="share of positive answers to the tasks")
        left.legend(fontsize=8)
        right.set_xticks(range(len(ARMS)), [title for title, _, _ in ARMS.values()], rotation=30, ha="right")
        right.set_ylabel("trained groups without gradient")
        figure.suptitle("By judge calls; bars and bands: 95 % over seeds")


def table(rows: Sequence[Row]) -> str:
    """Markdown: what each arm had at the end, and what it spent."""
    lines = [
        "| arm | seeds | positive at the end | PR at the end "
        "| groups without gradient | updates | rows trained | calls |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for arm, (title, _, _) in ARMS.items():
        runs = runs_of(rows, arm)
        if not runs:
            continue
        ends = [[row for row in run if "eval_positive" in row][-1] for run in runs]
        steps = [[row for row in run if "step" in row] for run in runs]
        cells = [
            title, str(len(runs)), str(interval([row["eval_positive"] for row in ends])),
            str(interval([row["eval_pr"] for row in ends])), str(per_run(rows, arm, "flat")),
            f"{_mean([len(run) for run in steps]):.0f}",
            f"{_mean([sum(row['rows'] for row in run) for run in steps]):.0f}",
            _range([max(row["calls"] for row in run) for run in runs]),
        ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    publish("ada", __doc__, draw, table)
