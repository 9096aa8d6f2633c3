# SPDX-License-Identifier: Apache-2.0
"""Reads a run's records as verl's `file` logger wrote them: one JSON object `{"step": ..., "data": {...}}` per line.

A record belongs to a training step, a validation, or both. A value that is not a finite number counts as not logged.
verl truncates the file when it resumes a run; `verl-kernel watch --resume` first moves the earlier records to another
file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from verl_kernel.errors import DataError
from verl_kernel.files import read_objects

COLUMNS = {
    "reward": "critic/score/mean",
    "correct": "kernel/correct_rate",
    "fast@1.2": "kernel/fast@1.2",
    "coverage": "kernel/time_coverage/mean",
    "hacks": "kernel/hack_rate",
    "PRS rejected": "prs/rejected_fraction",
    "entropy": "actor/entropy",
    "seconds": "timing_s/step",
}
"""The table's columns: each one is a metric of the step's record under the same name."""

Step = dict[str, Any]

_VALIDATION = re.compile(r"val-(?:core|aux)/(?P<source>.+)/(?P<figure>[^/]+)/mean@\d+")


def earlier(path: Path) -> Path:
    """Return the file next to a metrics file that holds the records from before the run was resumed."""
    return path.with_suffix(".earlier.jsonl")


def read_steps(path: Path) -> list[Step]:
    """Return the training steps in a metrics file by number; the later of equal numbers, without unfinished lines.

    Raises:
        DataError: there is no such file.
    """
    steps = {record["step"]: record for record in _records(path) if "training/global_step" in record}
    return [steps[number] for number in sorted(steps)]


def read_validations(path: Path) -> list[Step]:
    """Return the validations in a metrics file by step: figures `<data source>/<figure>`, means over trajectories.

    Where novelty was measured, `novel_correct` and `best_turn_novel_correct` are the novel share of correct programs.

    Raises:
        DataError: there is no such file.
    """
    validations: dict[int, Step] = {}
    for record in _records(path):
        matches = ((_VALIDATION.fullmatch(key), value) for key, value in record.items())
        figures = {f"{match['source']}/{match['figure']}": value for match, value in matches if match}
        if figures:
            validations[record["step"]] = {"step": record["step"], **figures, **_novel_of_correct(figures)}
    return [validations[number] for number in sorted(validations)]


def _novel_of_correct(figures: Step) -> Step:
    """Return, per data source, the novel share of the correct programs, where there is a correct one."""
    shares: Step = {}
    for key, value in figures.items():
        source, _, figure = key.rpartition("/")
        correct = number(figures.get(f"{source}/{figure.replace('novel_', '')}"))
        if figure in ("novel_acc", "best_turn_novel_acc") and correct and (novel := number(value)) is not None:
            shares[f"{source}/{figure.replace('acc', 'correct')}"] = novel / correct
    return shares


def series(steps: Iterable[Step], key: str) -> list[tuple[int, float]]:
    """Return the points (step, value) of a metric, from the steps that logged it."""
    return [(step["step"], value) for step in steps if (value := number(step.get(key))) is not None]


def number(value: Any) -> float | None:
    """Return a logged value, or `None` if it is not a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def step_rows(steps: Sequence[Step]) -> list[list[str]]:
    """Return the table's cells, a row per step; "-" where a metric was not logged."""
    return [[str(step["step"]), *(cell(step.get(key)) for key in COLUMNS.values())] for step in steps]


def steps_table(steps: Sequence[Step], title: str) -> Table:
    """Lay the steps out as a table with one row each."""
    table = Table(title=title, title_justify="left")
    for name in ("step", *COLUMNS):
        table.add_column(name, justify="right")
    for row in step_rows(steps):
        table.add_row(*row)
    return table


def cell(value: Any) -> str:
    """Return a logged value as text."""
    logged = number(value)
    if logged is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{logged:.3f}"


def _records(path: Path) -> Iterator[Step]:
    if not path.is_file() and not earlier(path).is_file():
        raise DataError(
            f"{path} does not exist: run the trainer with `file` in trainer.logger and VERL_FILE_LOGGER_PATH"
        )
    files = [file for file in (earlier(path), path) if file.is_file()]
    for record in (record for file in files for record in read_objects(file)):
        if isinstance(record.get("step"), int) and isinstance(record.get("data"), dict):
            yield {**record["data"], "step": record["step"]}
