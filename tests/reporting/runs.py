# SPDX-License-Identifier: Apache-2.0
"""Records and kernels as a run leaves them in its folder."""

import json
from pathlib import Path
from typing import Any


def step(number: int, **data: Any) -> dict[str, Any]:
    return {"step": number, "data": {"training/global_step": number, **data}}


def validation(number: int, source: str = "held_out", **figures: float) -> dict[str, Any]:
    keys = {"acc": "val-core"}
    return {"step": number, "data": {f"{keys.get(k, 'val-aux')}/{source}/{k}/mean@2": v for k, v in figures.items()}}


def kernel(number: int, task: str = "relu", speedup: float = 2.0, **fields: Any) -> dict[str, Any]:
    clock = {"time_coverage": 0.5, "timing_source": "simulated"}
    facts = {"turn": 1, **clock, "reference": "class Model: ...", "code": "k"}
    return {"step": number, "task_id": task, "speedup": speedup} | facts | fields


def write_lines(path: Path, *records: Any) -> Path:
    """One JSON value a line; a string is written as it is."""
    lines = (record if isinstance(record, str) else json.dumps(record) for record in records)
    path.write_text("\n".join(lines), encoding="utf-8")
    return path
