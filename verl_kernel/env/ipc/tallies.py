# SPDX-License-Identifier: Apache-2.0
"""Compares accounts of a launch: of two samples of it, of two runs, of two sizes.

Judges of GPUs import this too, where nothing executes kernels and llvmlite may be missing.
"""

from __future__ import annotations

from verl_kernel.env.executor.work import PRODUCTS
from verl_kernel.env.ipc.execution_messages import Tally

_NEGLIGIBLE = 0.01
"""Part of the bytes, or of the instructions, below which what moves or computes so little is not compared."""


def furthest(one: Tally, other: Tally) -> tuple[str, float]:
    """In what two accounts of a launch are furthest apart, and how far: the difference over the larger number."""
    apart = {"nothing": 0.0}
    issued = _NEGLIGIBLE * max(one["operations"]["issue"], other["operations"]["issue"])
    for unit, done in one["operations"].items():
        apart[f"operations ({unit})"] = _apart(done, other["operations"][unit], 0 if unit in PRODUCTS else issued)
    for place, what in enumerate(("read", "asked to read", "written", "asked to write"), 1):
        least = _NEGLIGIBLE * max(sum(area[place] for area in each["areas"].values()) for each in (one, other))
        for name in {**one["areas"], **other["areas"]}:
            done, there = (each["areas"].get(name, [0] * 5)[place] for each in (one, other))
            apart[f"bytes of {name} that are {what}"] = _apart(done, there, least)
    return max(apart.items(), key=lambda item: item[1])


def _apart(one: float, other: float, least: float) -> float:
    most = max(one, other)
    return abs(one - other) / most if most > least else 0.0
