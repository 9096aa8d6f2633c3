# SPDX-License-Identifier: Apache-2.0
"""Rows of a verl dataset that asks for kernels, and the check of such a dataset before training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from verl_kernel.errors import DataError
from verl_kernel.reward.task_row import task_from_row

DATA_SOURCE = "kernel_quickstart"
Row = dict[str, Any]


def make_row(
    messages: Sequence[Mapping[str, str]], reference: str, *, task_id: str, split: str, index: int, level: int = 1
) -> Row:
    """Return one dataset row for a reference program."""
    return {
        "data_source": DATA_SOURCE,
        "prompt": [dict(message) for message in messages],
        "ability": "kernel",
        "reward_model": {"style": "rule", "ground_truth": reference},
        "extra_info": {"split": split, "index": index, "entry_point": "Model", "task_id": task_id, "level": level},
        "agent_name": "kernel_agent",
    }


def write_rows(rows: Sequence[Row], path: Path) -> None:
    """Write rows as parquet."""
    pq.write_table(pa.Table.from_pylist(list(rows)), path)


def check_rows(path: str | Path) -> None:
    """Check that every row of a dataset can be prompted with and judged.

    Raises:
        DataError: the file cannot be read, or a row lacks something; names file, row, key and remedy.
    """
    rows = _read(Path(path))
    if not rows:
        raise DataError(f"{path} holds no rows: write at least one task into it")
    for number, row in enumerate(rows):
        try:
            _check_prompt(row.get("prompt"))
            task_from_row(row)
        except DataError as exc:
            raise DataError(f"{path}, row {number}: {exc}") from exc


def _read(path: Path) -> list[Row]:
    if not path.is_file():
        raise DataError(f"{path} does not exist: give a parquet file, or make one with `verl-kernel data quickstart`")
    try:
        rows: list[Row] = pq.read_table(path).to_pylist()
    except (pa.ArrowException, OSError) as exc:
        raise DataError(f"{path} is not a readable parquet file: {exc}") from exc
    return rows


def _check_prompt(prompt: Any) -> None:
    if not isinstance(prompt, list) or not prompt:
        raise DataError("key `prompt` holds no messages: store a list of {role, content}, the last one from the user")
    for message in prompt:
        if not isinstance(message, dict) or not all(isinstance(message.get(key), str) for key in ("role", "content")):
            raise DataError("key `prompt` holds a message without text: every message needs `role` and `content`")
