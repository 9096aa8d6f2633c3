# SPDX-License-Identifier: Apache-2.0
"""Suites from files: KernelBench, a data set in this package's form, or a folder of reference programs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from verl_kernel.bench.suites.suite import Suite, SuiteItem
from verl_kernel.data.kernelbench import read_kernelbench
from verl_kernel.data.prompts import task_prompt
from verl_kernel.data.rows import check_rows, read_rows, task_from_row
from verl_kernel.data.source_files import read_source
from verl_kernel.env import Task
from verl_kernel.errors import DataError, TaskError

_GENERATED = "kernel_quickstart"
"""Data source of rows whose tasks are named after their families."""


def kernelbench_suite(path: Path, levels: Collection[int]) -> Suite:
    """Return KernelBench's problems from a checkout or parquet files, with this package's prompt."""
    problems = read_kernelbench(path, levels)
    tasks = tuple(_stated(problem.task(), problem.level) for problem in problems)
    name = ",".join(map(str, sorted({problem.level for problem in problems})))
    return Suite(f"kernelbench level {name}", tasks)


def parquet_suite(path: Path) -> Suite:
    """Return the rows of a data set, with their own prompts.

    Raises:
        DataError: a row lacks a prompt, a reference or a name; the message says which.
    """
    check_rows(path)
    return Suite(path.stem, tuple(map(_row, read_rows(path))))


def folder_suite(folder: Path) -> Suite:
    """Return the reference programs of a folder, one per file, named after their files.

    Raises:
        DataError: there is no program, or one does not parse; the message names the file.
    """
    files = sorted(folder.glob("*.py"))
    if not files:
        raise DataError(f"{folder} holds no Python files: name a folder of reference programs")
    return Suite(folder.resolve().name, tuple(_stated(_task(file)) for file in files))


def _stated(task: Task, level: int | None = None) -> SuiteItem:
    return SuiteItem(task, tuple(task_prompt(task.reference, task.entry_point)), level)


def _task(file: Path) -> Task:
    try:
        return Task(read_source(file), file.stem)
    except TaskError as exc:
        raise DataError(f"{file}: {exc}") from exc


def _row(row: Mapping[str, Any]) -> SuiteItem:
    info, task = row.get("extra_info") or {}, task_from_row(row)
    level, family = info.get("level"), info.get("family")
    if family is None and row.get("data_source") == _GENERATED:
        family = task.task_id.rpartition("-")[0]
    messages = tuple({"role": message["role"], "content": message["content"]} for message in row["prompt"])
    return SuiteItem(task, messages, None if level is None else int(level), None if family is None else str(family))
