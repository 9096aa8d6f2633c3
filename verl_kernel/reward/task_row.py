# SPDX-License-Identifier: Apache-2.0
"""From a verl dataset row to the task it asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl_kernel.env.task import Task
from verl_kernel.errors import DataError, TaskError


def task_from_row(row: Mapping[str, Any]) -> Task:
    """Build the task from `reward_model.ground_truth` (reference source) and `extra_info`.

    Raises:
        DataError: the row has no reference, or one that is no KernelBench-style program.
    """
    info = row.get("extra_info") or {}
    name = str(info.get("task_id") or info.get("index") or row.get("index") or "")
    reward_model = row.get("reward_model") or {}
    reference = reward_model.get("ground_truth") if isinstance(reward_model, Mapping) else None
    if not isinstance(reference, str):
        raise DataError(
            f"row {name or '<unnamed>'} has no reward_model.ground_truth: store the reference program's source there"
        )
    try:
        return Task(reference=reference, task_id=name, entry_point=str(info.get("entry_point") or "Model"))
    except TaskError as exc:
        raise DataError(f"reward_model.ground_truth of row {name or '<unnamed>'}: {exc}") from exc
