# SPDX-License-Identifier: Apache-2.0
"""A folder of a user's own reference programs as rows: a file is a task, named after it, with this package's prompt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from verl_kernel.data.foreign_rows import Record, row_for_prompt
from verl_kernel.data.rows import Row, task_prompt
from verl_kernel.data.source_files import read_source
from verl_kernel.errors import DataError

_WANTED = "name a folder of reference programs, Python files with `class Model`, `get_inputs` and `get_init_inputs`"


def records(folder: Path) -> Iterator[Record]:
    """Yield the files of a folder, in the order of their names (raises DataError)."""
    if not folder.is_dir():
        raise DataError(f"{folder} {'is a file' if folder.exists() else 'does not exist'}: {_WANTED}")
    files = sorted(folder.glob("*.py"))
    if not files:
        raise DataError(f"{folder} holds no Python files: {_WANTED}")
    yield from ({"file": file, "data_source": folder.resolve().name} for file in files)


def task_row(record: Record, number: int, targets: Sequence[str] = ()) -> Row:
    """Return the row of a file, whose prompt names the targets (raises DataError)."""
    reference = read_source(record["file"])
    return row_for_prompt(
        task_prompt(reference, targets=targets), reference, "Model", number, source="folder",
        task_id=record["file"].stem, data_source=record["data_source"], level=None, metadata={},
    )  # fmt: skip
