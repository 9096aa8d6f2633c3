# SPDX-License-Identifier: Apache-2.0
"""Converts KernelBench's problems (MIT) to rows, with this package's prompt and one `data_source` for each level."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from verl_kernel.data.foreign_rows import Record, as_level, asked_row
from verl_kernel.data.kernelbench import read_kernelbench
from verl_kernel.data.prompts import task_prompt
from verl_kernel.data.rows import Row
from verl_kernel.errors import DataError

REPOSITORY = "ScalingIntelligence/KernelBench"
WANTED = (
    "on a machine with a network, clone https://github.com/ScalingIntelligence/KernelBench, or fetch the parquet files "
    f"of the data set {REPOSITORY} from huggingface.co (`hf download {REPOSITORY} --repo-type dataset --local-dir "
    "DIR`, pinned by --revision), and name the folder here"
)
"""What to fetch and where to put it."""


def records(path: Path, levels: Collection[int]) -> Iterator[Record]:
    """Yield the problems as mappings (raises DataError)."""
    if not path.exists():
        raise DataError(f"{path} does not exist: {WANTED}")
    if path.is_dir() and not any(any(path.rglob(f"*{ending}")) for ending in (".py", ".parquet")):
        raise DataError(f"{path} holds no tasks: {WANTED}")
    for problem in read_kernelbench(path, levels):
        yield {"level": problem.level, "problem_id": problem.problem_id, "code": problem.code, "id": problem.task_id}


def task_row(record: Record, number: int) -> Row:
    """Return a row for a problem (raises DataError)."""
    code, level = record["code"], as_level(record["level"])
    return asked_row(
        task_prompt(code), code, "Model", number, source="kernelbench", task_id=record["id"],
        data_source=f"kernelbench_level{level}", level=level, left={"problem_id": record["problem_id"]},
    )  # fmt: skip
