# SPDX-License-Identifier: Apache-2.0
"""Near duplicates between training tasks and those of a validation, by data source."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from verl_kernel.data.families import THRESHOLD, Shingles, normal_form, shingles, similarity
from verl_kernel.data.rows import read_rows, task_from_row


@dataclass(frozen=True)
class Overlap:
    """How near the tasks of one data source come to training."""

    source: str
    tasks: int
    near: int
    """Tasks with a near duplicate in training: a similarity of `THRESHOLD` or more."""
    closest: float
    """Similarity of the most similar pair."""


def overlaps(train: Path, val: Path) -> list[Overlap]:
    """Compare each task of a validation with all of training, as `verl-kernel data split` compares tasks.

    Args:
        train: parquet file of training tasks.
        val: parquet file of validation tasks.

    Raises:
        DataError: a file cannot be read, or a row holds no task.
    """
    training = [form for forms in _forms(train).values() for form in forms]
    return [_overlap(source, forms, training) for source, forms in _forms(val).items()]


def _overlap(source: str, forms: list[Shingles], training: list[Shingles]) -> Overlap:
    closest = [max((similarity(form, trained) for trained in training), default=0.0) for form in forms]
    return Overlap(source, len(forms), sum(nearest >= THRESHOLD for nearest in closest), max(closest))


def _forms(path: Path) -> dict[str, list[Shingles]]:
    """Return the shingles of each task by data source."""
    forms: defaultdict[str, list[Shingles]] = defaultdict(list)
    for row in read_rows(path):
        forms[str(row.get("data_source"))].append(shingles(normal_form(task_from_row(row).reference)))
    return dict(forms)
