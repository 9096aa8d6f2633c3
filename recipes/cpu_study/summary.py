# SPDX-License-Identifier: Apache-2.0
"""Summarises a study's rows as curves and as a table: means over seeds with Student's 95 % interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from recipes.cpu_study.student import quantile

Row = Mapping[str, Any]
Measure = Callable[[Row], "float | None"]
END = 5
"""Number of steps at either end of a run over which its first and last figure average."""


@dataclass(frozen=True)
class Interval:
    """A mean over seeds and half the width of its 95 % interval, which a single seed does not have."""

    mean: float
    half: float | None
    count: int

    def __str__(self) -> str:
        return f"{self.mean:.2f}" + ("" if self.half is None else f" ± {self.half:.2f}")


def _metric(key: str) -> Measure:
    return lambda row: row.get(key)


def _reward(row: Row) -> float | None:
    rewards = [value for key, value in row.items() if key.startswith("kernel/turn_") and key.endswith("/reward/mean")]
    return sum(rewards) / len(rewards) if rewards else None


MEASURES: dict[str, Measure] = {
    "reward of a turn": _reward,
    "correct": _metric("kernel/correct_rate"),
    "fast@1.2": _metric("kernel/fast@1.2"),
    "time coverage": _metric("kernel/time_coverage/mean"),
    "hack rate": _metric("kernel/hack_rate"),
}
"""The measures of a study: maps a name to its value in one row, `None` where the step has none."""


def last_turn(row: Row) -> int:
    """Return the highest turn number in the names of a row's metrics, 0 if there is none."""
    turns = [key.split("/")[1].removeprefix("turn_") for key in row if key.startswith("kernel/turn_")]
    return max((int(number) for number in turns if number.isdigit()), default=0)


def interval(values: Sequence[float]) -> Interval:
    """Return mean and Student's 95 % interval of independent values.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("an interval needs at least one value")
    mean = float(np.mean(values))
    if len(values) == 1:
        return Interval(mean, None, 1)
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return Interval(mean, quantile(len(values) - 1) * error, len(values))


def curve(rows: Iterable[Row], arm: str, measure: str) -> dict[int, Interval]:
    """Return a measure of one arm by step, over the seeds that have it."""
    found: dict[int, list[float]] = {}
    for row in rows:
        value = MEASURES[measure](row) if row["arm"] == arm else None
        if value is not None:
            found.setdefault(row["step"], []).append(value)
    return {step: interval(found[step]) for step in sorted(found)}


def ends(rows: Sequence[Row], arm: str, measure: str) -> tuple[Interval, Interval, Interval] | None:
    """Return first figure, last figure and gain of an arm's runs, each over `END` steps; `None` without a run."""
    pairs = []
    for run in _runs(rows, arm).values():
        values = [value for row in run if (value := MEASURES[measure](row)) is not None]
        if values:
            pairs.append((float(np.mean(values[:END])), float(np.mean(values[-END:]))))
    if not pairs:
        return None
    first, last = zip(*pairs, strict=True)
    return interval(first), interval(last), interval([b - a for a, b in pairs])


def _runs(rows: Sequence[Row], arm: str) -> dict[tuple[int, str], list[Row]]:
    """Return the rows of each run of an arm by step; a seed has one from each model that it started from."""
    found: dict[tuple[int, str], list[Row]] = {}
    for row in sorted(rows, key=lambda row: (row["seed"], row.get("model", ""), row["step"])):
        if row["arm"] == arm:
            found.setdefault((row["seed"], row.get("model", "")), []).append(row)
    return found


def table(rows: Sequence[Row], titles: Mapping[str, str]) -> str:
    """Return a Markdown table: first and last figure of every arm and measure.

    Args:
        rows: the study's rows.
        titles: arm to its title, in the table's order.
    """
    lines = ["| arm | seeds | " + " | ".join(MEASURES) + " |", "|---" * (len(MEASURES) + 2) + "|"]
    for arm, title in titles.items():
        seeds = len(_runs(rows, arm))
        cells = [_cell(ends(rows, arm, measure)) for measure in MEASURES]
        lines.append(f"| {title} | {seeds} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(found: tuple[Interval, Interval, Interval] | None) -> str:
    return "-" if found is None else f"{found[0].mean:.2f} → {found[1]}"
