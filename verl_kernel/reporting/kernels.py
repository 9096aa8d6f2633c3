# SPDX-License-Identifier: Apache-2.0
"""Reads the best kernels of a run from the log that `sampler.logs` wrote."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from verl_kernel.figures.attempts import Rank, rank
from verl_kernel.files import read_objects

Kernel = dict[str, Any]
_NEEDED: dict[str, type | tuple[type, ...]] = {
    "step": int,
    "task_id": str,
    "turn": int,
    "speedup": (int, float),
    "code": str,
}


def read_kernels(path: Path) -> list[Kernel]:
    """Return the kernels in a file, in order; empty if there is no file. Lines that are not complete are skipped."""
    if not path.is_file():
        return []
    return [
        kernel
        for kernel in read_objects(path)
        if all(isinstance(kernel.get(key), kind) for key, kind in _NEEDED.items())
    ]


def rank_of(kernel: Kernel) -> Rank:
    """Return `figures.attempts.rank` of a logged kernel."""
    return rank(sure_speedup_of(kernel), kernel["speedup"])


def sure_speedup_of(kernel: Kernel) -> float | None:
    """Return the sure speedup of a logged kernel; older lines state it only if times are simulated."""
    sure = kernel.get("sure_speedup", kernel["speedup"] if kernel.get("timing_source") == "simulated" else None)
    return float(sure) if isinstance(sure, int | float) and not isinstance(sure, bool) else None


def best_kernels(kernels: Sequence[Kernel], count: int | None = None) -> list[Kernel]:
    """Return the best kernel of each task by `rank`, the earliest of equals; best first, at most `count` if given."""
    best: dict[str, Kernel] = {}
    for kernel in kernels:
        leader = best.get(kernel["task_id"])
        if kernel["speedup"] > 0 and (leader is None or rank_of(kernel) > rank_of(leader)):
            best[kernel["task_id"]] = kernel
    return sorted(best.values(), key=rank_of, reverse=True)[:count]
