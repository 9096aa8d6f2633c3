# SPDX-License-Identifier: Apache-2.0
"""Conversations in the form and the order in which verl's SFT trainer reads them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch.utils.data import DistributedSampler, TensorDataset


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
    order = [row for batch in batches for row in batch]
    rows_drawn: Iterable[int] = DistributedSampler(TensorDataset(torch.tensor(order)), num_replicas=1, rank=0)
    placed = dict(zip(rows_drawn, order, strict=True))
    return [placed[position] for position in range(len(order))]
