# SPDX-License-Identifier: Apache-2.0
"""Splits a data set by families, so that no held-out task has a near duplicate among those that are trained on."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from verl_kernel.data.families import Families
from verl_kernel.data.files import writing_folder
from verl_kernel.data.published import files_of, records_of
from verl_kernel.data.rows import task_from_row
from verl_kernel.env import Task
from verl_kernel.errors import ConfigError, DataError

TRAIN, VAL = "train", "val"
_WANTED = "name a parquet file of tasks, as `verl-kernel data rows` writes it"


@dataclass(frozen=True)
class Split:
    """The result of a split."""

    tasks: int
    forms: int
    """Distinct normal forms among the tasks."""
    families: list[list[str]]
    """Ids of the tasks of each family, the largest first."""
    held_out: list[int]
    """Numbers of the families that are held out."""
    closest: float
    """Similarity of the most similar pair with one task on each side."""

    @property
    def held_out_tasks(self) -> int:
        """Return how many tasks are held out."""
        return sum(len(self.families[number]) for number in self.held_out)


def split(path: Path, out: Path, share: float, threshold: float, seed: int) -> Split:
    """Write `train.parquet`, `val.parquet` and `split.json`, which names the family of each task.

    Args:
        path: parquet file of tasks.
        out: folder, created if it is missing.
        share: share of the tasks to hold out, in (0, 1).
        threshold: smallest similarity of two references in one family.
        seed: seed for the choice of families.

    Raises:
        ConfigError: the share or the threshold is out of its range.
        DataError: the file cannot be read or has a bad row, all its tasks are in one family, or `out` cannot be
            written.
    """
    if not 0 < share < 1:
        raise ConfigError(f"--val is {share:g}: give a share between 0 and 1")
    if not 0 < threshold <= 1:
        raise ConfigError(f"--threshold is {threshold:g}: give a similarity above 0, at most 1")
    if path.is_dir() or path.suffix == ".jsonl":
        raise DataError(f"{path} is no parquet file: {_WANTED}")
    tasks = list(_tasks(path))
    families = Families([task.reference for task in tasks], threshold)
    members = sorted(families.members, key=len, reverse=True)
    chosen = choose([len(family) for family in members], share, Random(seed))
    if not chosen:
        raise DataError(f"{path} holds one family of {len(tasks)} tasks: raise --threshold, or add other tasks")
    val = {index for number in chosen for index in members[number]}
    names = [[tasks[index].task_id for index in family] for family in members]
    closest = families.closest(sorted(val), [index for index in range(len(tasks)) if index not in val])
    outcome = Split(len(tasks), families.forms, names, chosen, closest)
    _write(path, out, val, outcome, {"val": share, "threshold": threshold, "seed": seed})
    return outcome


def choose(sizes: Sequence[int], share: float, random: Random) -> list[int]:
    """Choose random families to hold out that fit, else the smallest; none if there is only one family."""
    if len(sizes) < 2:
        return []
    order, room, chosen = list(range(len(sizes))), max(1, round(share * sum(sizes))), list[int]()
    random.shuffle(order)
    for number in order:
        if sizes[number] <= room:
            chosen.append(number)
            room -= sizes[number]
    if len(chosen) == len(sizes):
        chosen.pop()
    return sorted(chosen) or [min(order, key=sizes.__getitem__)]


def _tasks(path: Path) -> Iterator[Task]:
    for number, row in enumerate(records_of(files_of(path, _WANTED))):
        try:
            yield task_from_row(row)
        except DataError as exc:
            raise DataError(f"{path}, row {number}: {exc}") from exc


def _write(path: Path, out: Path, val: set[int], outcome: Split, options: dict[str, Any]) -> None:
    sides = {number: VAL if number in outcome.held_out else TRAIN for number in range(len(outcome.families))}
    families = [{"side": sides[number], "tasks": tasks} for number, tasks in enumerate(outcome.families)]
    text = json.dumps({**options, "closest": outcome.closest, "families": families}, indent=1)
    with writing_folder(out):
        _write_rows(path, out, val)
        (out / "split.json").write_text(f"{text}\n")


def _write_rows(path: Path, out: Path, val: set[int]) -> None:
    """Write every column of every row, and note in `extra_info` the side and the index there."""
    first, written = 0, {TRAIN: 0, VAL: 0}
    with ExitStack() as stack, pq.ParquetFile(path) as file:
        schema = file.schema_arrow
        writers = {side: stack.enter_context(pq.ParquetWriter(out / f"{side}.parquet", schema)) for side in written}
        for batch in file.iter_batches(batch_size=512):
            is_held_out = pa.array([number in val for number in range(first, first + batch.num_rows)])
            for side, mask in ((VAL, is_held_out), (TRAIN, pa.array([not value.as_py() for value in is_held_out]))):
                part = _with_side(batch.filter(mask), side, written[side])
                writers[side].write_batch(part)
                written[side] += part.num_rows
            first += batch.num_rows


def _with_side(batch: pa.RecordBatch, side: str, first: int) -> pa.RecordBatch:
    column = batch.schema.get_field_index("extra_info")
    info = None if column < 0 else batch.column(column)
    if info is None or not pa.types.is_struct(info.type):
        return batch
    new = {"split": [side] * len(batch), "index": list(range(first, first + len(batch)))}
    columns = [
        pa.array(new[field.name], field.type) if field.name in new else info.field(number)
        for number, field in enumerate(info.type)
    ]
    changed = pa.StructArray.from_arrays(columns, fields=list(info.type), mask=info.is_null())
    return batch.set_column(column, batch.schema.field(column), changed)
