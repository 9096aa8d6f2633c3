# SPDX-License-Identifier: Apache-2.0
"""Rows of a verl dataset that asks for kernels, and the check of such a dataset before training."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch.utils.data import DistributedSampler, TensorDataset

from verl_kernel.env.task import Task
from verl_kernel.errors import DataError
from verl_kernel.reward.task_row import task_from_row

DATA_SOURCE = "kernel_quickstart"
Row = dict[str, Any]


def make_row(
    messages: Sequence[Mapping[str, str]],
    reference: str,
    *,
    task_id: str,
    split: str,
    index: int,
    level: int = 1,
    entry_point: str = "Model",
) -> Row:
    """Return one dataset row for a reference program."""
    return {
        "data_source": DATA_SOURCE,
        "prompt": [dict(message) for message in messages],
        "ability": "kernel",
        "reward_model": {"style": "rule", "ground_truth": reference},
        "extra_info": {"split": split, "index": index, "entry_point": entry_point, "task_id": task_id, "level": level},
        "agent_name": "kernel_agent",
    }


def write_rows(rows: Sequence[Row], path: Path) -> None:
    """Write rows as parquet."""
    pq.write_table(pa.Table.from_pylist(list(rows)), path)


def write_talks(talks: Sequence[Sequence[Mapping[str, str]]], path: Path) -> None:
    """Write conversations as verl's SFT trainer reads them: parquet with a column `messages`."""
    pq.write_table(pa.table({"messages": [list(talk) for talk in talks]}), path)


def group_by_length(lengths: Sequence[int], size: int, rng: Random) -> list[int]:
    """Return the order of rows in which the batches of verl's SFT trainer hold rows of similar length.

    The trainer draws rows by torch's DistributedSampler with its fixed seed. Rows laid out against that
    permutation arrive in batches that need little padding; the order of the batches is random.

    Args:
        lengths: tokens of each row.
        size: rows of a batch on one process.
        rng: order of the batches, and which rows are left out of the last, incomplete one.

    Returns:
        Indices into `lengths`, as many as fill whole batches: the row at each place of the file.
    """
    rows = list(range(len(lengths)))
    rng.shuffle(rows)
    rows = sorted(rows[: len(rows) // size * size], key=lambda row: lengths[row] // 32)
    batches = [rows[start : start + size] for start in range(0, len(rows), size)]
    rng.shuffle(batches)
    wanted = [row for batch in batches for row in batch]
    rows_drawn: Iterable[int] = DistributedSampler(TensorDataset(torch.tensor(wanted)), num_replicas=1, rank=0)
    placed = dict(zip(rows_drawn, wanted, strict=True))
    return [placed[place] for place in range(len(wanted))]


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
            _check_class(row["prompt"], task_from_row(row))
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


def _check_class(prompt: list[dict[str, str]], task: Task) -> None:
    asked = set(re.findall(r"\w+", " ".join(message["content"] for message in prompt)))
    if "ModelNew" in asked and task.candidate_class not in asked:
        raise DataError(
            f"key `prompt` asks for ModelNew, but with extra_info.entry_point {task.entry_point} a candidate defines "
            f"{task.candidate_class}: name that class in the prompt"
        )
