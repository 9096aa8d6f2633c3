# SPDX-License-Identifier: Apache-2.0
"""Reads KernelBench's problems (MIT), and converts them to rows, with one `data_source` for each level.

Problems are read from a checkout (`level<L>/<id>_<name>.py`) or from parquet files of the hub data set. A problem's
number is the one before the first `_` of its file; names are spelled differently in the two forms and are not used.
This package contains nothing of KernelBench.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from verl_kernel.data.files import reading
from verl_kernel.data.foreign_rows import Record, as_level, row_for_prompt
from verl_kernel.data.rows import Row, task_prompt
from verl_kernel.data.source_files import read_source
from verl_kernel.env import Task
from verl_kernel.errors import DataError, TaskError

_COLUMNS = ("code", "level", "problem_id")
_WHERE = (
    "give a checkout (a folder with level1/1_name.py, ...) or parquet files with the columns code, level, name, "
    "problem_id"
)
REPOSITORY = "ScalingIntelligence/KernelBench"
WANTED = (
    "on a machine with a network, clone https://github.com/ScalingIntelligence/KernelBench, or fetch the parquet files "
    f"of the data set {REPOSITORY} from huggingface.co (`hf download {REPOSITORY} --repo-type dataset --local-dir "
    "DIR`, pinned by --revision), and name the folder here"
)
"""What to fetch and where to put it."""


@dataclass(frozen=True)
class KernelBenchProblem:
    """One problem."""

    level: int
    problem_id: int
    """Number of the problem within its level, from 1."""
    code: str
    """Source text of the reference program."""
    origin: str
    """File, and row in it if it has rows; for messages."""

    @property
    def task_id(self) -> str:
        """Return `level_<L>_problem_<P>`, the name of KernelBench's own result files."""
        return f"level_{self.level}_problem_{self.problem_id}"

    def task(self) -> Task:
        """Return the task of this problem.

        Raises:
            DataError: the reference does not parse or lacks a name; the message says where it is.
        """
        try:
            return Task(self.code, self.task_id)
        except TaskError as exc:
            raise DataError(f"{self.origin}: {exc}") from exc


def read_kernelbench(path: str | Path, levels: Collection[int] = ()) -> list[KernelBenchProblem]:
    """Return the problems of these levels (of all if none is named), by level and number.

    Raises:
        DataError: there are none, a file is damaged, or a number occurs twice in a level.
    """
    path = Path(path)
    if not path.exists():
        raise DataError(f"{path} does not exist: {_WHERE}")
    problems = sorted(_problems(path, levels), key=lambda problem: (problem.level, problem.problem_id))
    missing = sorted(set(levels) - {problem.level for problem in problems})
    if missing or not problems:
        of_level = f" of level {missing[0]}" if missing else ""
        raise DataError(f"{path} holds no problems{of_level}: {_WHERE}")
    for earlier, later in pairwise(problems):
        if earlier.task_id == later.task_id:
            raise DataError(f"{earlier.origin} and {later.origin} both hold {earlier.task_id}: keep one of them")
    return problems


def _problems(path: Path, levels: Collection[int]) -> Iterator[KernelBenchProblem]:
    files = [path] if path.is_file() else sorted(path.rglob("*.parquet"))
    if path.is_file() and path.suffix != ".parquet":
        raise DataError(f"{path} is no parquet file: {_WHERE}")
    folders = _level_folders(path)
    if folders:
        for level, folder in folders.items():
            if not levels or level in levels:
                yield from _of_folder(folder, level)
        return
    for file in files:
        yield from (problem for problem in _of_parquet(file) if not levels or problem.level in levels)


def _level_folders(path: Path) -> dict[int, Path]:
    """Return the folders `level1` and so on, in a checkout or in its folder `KernelBench`."""
    for parent in (path, path / "KernelBench"):
        named = ((re.fullmatch(r"level_?(\d+)", folder.name), folder) for folder in sorted(parent.glob("level*")))
        folders = {int(match[1]): folder for match, folder in named if match and folder.is_dir()}
        if folders:
            return folders
    return {}


def _of_folder(folder: Path, level: int) -> Iterator[KernelBenchProblem]:
    for file in folder.glob("*.py"):
        match = re.match(r"(\d+)_", file.name)
        if match:
            yield KernelBenchProblem(level, int(match[1]), read_source(file), str(file))


def _of_parquet(file: Path) -> Iterator[KernelBenchProblem]:
    with reading(file, _WHERE):
        table = pq.read_table(file)
    for column in _COLUMNS:
        if column not in table.column_names:
            raise DataError(f"{file} has no column {column}: {_WHERE}")
    for number, row in enumerate(table.select(_COLUMNS).to_pylist()):
        yield _of_row(row, f"{file}, row {number}")


def _of_row(row: dict[str, Any], origin: str) -> KernelBenchProblem:
    code, level, problem_id = (row[column] for column in _COLUMNS)
    if not isinstance(code, str) or not isinstance(level, int) or not isinstance(problem_id, int):
        raise DataError(f"{origin}: code must be text, level and problem_id whole numbers: load the data set anew")
    return KernelBenchProblem(level, problem_id, code, origin)


def records(path: Path, levels: Collection[int]) -> Iterator[Record]:
    """Yield the problems as mappings (raises DataError)."""
    if not path.exists():
        raise DataError(f"{path} does not exist: {WANTED}")
    if path.is_dir() and not any(any(path.rglob(f"*{ending}")) for ending in (".py", ".parquet")):
        raise DataError(f"{path} holds no tasks: {WANTED}")
    for problem in read_kernelbench(path, levels):
        yield {"level": problem.level, "problem_id": problem.problem_id, "code": problem.code, "id": problem.task_id}


def task_row(record: Record, number: int, targets: Sequence[str] = ()) -> Row:
    """Return a row for a problem, whose prompt names the targets (raises DataError)."""
    code, level = record["code"], as_level(record["level"])
    return row_for_prompt(
        task_prompt(code, targets=targets),
        code,
        "Model",
        number,
        source="kernelbench",
        task_id=record["id"],
        data_source=f"kernelbench_level{level}",
        level=level,
        metadata={"problem_id": record["problem_id"]},
    )
