# SPDX-License-Identifier: Apache-2.0
"""Orders kernels from worst to best: the only such order, shared by logs, reports, scores and metrics."""

from __future__ import annotations

from collections.abc import Sequence

from verl_kernel.figures.attempts import Attempt

Rank = tuple[bool, float, float]


def rank(sure_speedup: float | None, speedup: float | None) -> Rank:
    """Return a key that grows with how good a kernel is: by its sure speedup if that is known, then by its speedup."""
    return sure_speedup is not None, sure_speedup or 0.0, speedup or 0.0


def best(history: Sequence[Attempt]) -> Attempt:
    """Return the correct answer of the highest `rank`, else one that compiled, else the first.

    Among equal answers, return the earliest. Lost answers are chosen only if there are no others.
    """
    judged = [one for one in history if not one.lost] or list(history)
    return max(judged, key=lambda one: (one.correct, one.correct and rank(one.sure_speedup, one.speedup), one.compiled))
