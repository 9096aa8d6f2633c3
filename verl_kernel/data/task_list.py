# SPDX-License-Identifier: Apache-2.0
"""Lists the tasks of a file or folder of any known kind; entries that are no tasks come with the reason."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_kernel.data.kernelbench import read_kernelbench
from verl_kernel.data.rows import read_rows, task_from_row
from verl_kernel.data.source_files import read_source
from verl_kernel.env import Task
from verl_kernel.errors import DataError, TaskError


@dataclass(frozen=True)
class Listed:
    """A task, or the entry found in its place."""

    name: str
    level: int | None
    task: Task | None
    reason: str = ""
    """Why the entry is not a task."""


def list_tasks(path: Path, levels: Collection[int] = ()) -> list[Listed]:
    """Return the tasks at a path, in order.

    Args:
        path: a data set in this package's form, a Python file or a folder of them, or a KernelBench checkout or parquet
            file.
        levels: wanted levels, all if empty; tasks without a level belong to none.

    Raises:
        DataError: the path does not exist or cannot be read.
    """
    if not path.exists():
        raise DataError(f"{path} does not exist: name a parquet file of tasks, a Python file, or a folder")
    entries = list(_of_folder(path, levels) if path.is_dir() else _of_file(path))
    chosen = [item for item in entries if not levels or item.level in levels]
    if not chosen:
        of_level = f" of level {', '.join(map(str, sorted(levels)))}" if levels else ""
        raise DataError(f"{path} holds no tasks{of_level}: name a parquet file of tasks, a Python file, or a folder")
    return chosen


def _of_folder(path: Path, levels: Collection[int]) -> Iterator[Listed]:
    files = sorted(path.glob("*.py"))
    if files:
        yield from map(_of_python, files)
        return
    for problem in read_kernelbench(path, levels):
        yield _listed(problem.task_id, problem.level, problem.code)


def _of_file(path: Path) -> Iterator[Listed]:
    if path.suffix == ".py":
        yield _of_python(path)
        return
    rows = read_rows(path)
    if rows and "code" in rows[0] and "reward_model" not in rows[0]:
        for problem in read_kernelbench(path):
            yield _listed(problem.task_id, problem.level, problem.code)
        return
    for number, row in enumerate(rows):
        yield _of_row(row, number)


def _of_python(file: Path) -> Listed:
    try:
        return _listed(file.stem, None, read_source(file))
    except DataError as exc:
        return Listed(file.stem, None, None, str(exc))


def _of_row(row: Mapping[str, Any], number: int) -> Listed:
    info = row.get("extra_info") or {}
    name = str(info.get("task_id") or f"row {number}")
    try:
        return Listed(name, info.get("level"), task_from_row(row))
    except DataError as exc:
        return Listed(name, info.get("level"), None, str(exc))


def _listed(name: str, level: int | None, code: str) -> Listed:
    try:
        return Listed(name, level, Task(code, name))
    except TaskError as exc:
        return Listed(name, level, None, str(exc))
