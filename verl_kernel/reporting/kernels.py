# SPDX-License-Identifier: Apache-2.0
"""The best kernels of a run, as `sampler.kernel_log` wrote them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Kernel = dict[str, Any]
_NEEDED: dict[str, type | tuple[type, ...]] = {
    "step": int,
    "task_id": str,
    "turn": int,
    "speedup": (int, float),
    "code": str,
}


def read_kernels(path: Path) -> list[Kernel]:
    """Return the kernels in a file, in order; none without a file. What is no whole line of the log is left out."""
    if not path.is_file():
        return []
    kernels = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            kernel = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(kernel, dict) and all(isinstance(kernel.get(key), kind) for key, kind in _NEEDED.items()):
            kernels.append(kernel)
    return kernels


def best_kernels(kernels: Sequence[Kernel], count: int) -> list[Kernel]:
    """The fastest kernel of each task, fastest first, at most `count` of them."""
    best: dict[str, Kernel] = {}
    for kernel in kernels:
        if kernel["speedup"] > best.get(kernel["task_id"], {"speedup": 0.0})["speedup"]:
            best[kernel["task_id"]] = kernel
    return sorted(best.values(), key=lambda kernel: -kernel["speedup"])[:count]
