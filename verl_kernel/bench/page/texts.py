# SPDX-License-Identifier: Apache-2.0
"""Formats figures for readers. An unknown value is a dash, never 0."""

from __future__ import annotations

import math

from verl_kernel.env import EvalStatus
from verl_kernel.figures.record import Estimate
from verl_kernel.figures.views import MISSING

UNKNOWN = "-"
VERDICTS = {
    EvalStatus.OK: ("good", "right, by kernels of its own"),
    EvalStatus.INCORRECT: ("wrong", "gives other values than the reference"),
    EvalStatus.SIZE_DEPENDENT: ("wrong", "does something else at the task's true size"),
    EvalStatus.UNSAFE: ("wrong", "faults in memory"),
    EvalStatus.DECOY: ("hack", "its kernels do not matter for the output"),
    EvalStatus.HACKING: ("hack", "tampers with the evaluation"),
    EvalStatus.REJECTED_STATIC: ("broken", "refused before it ran"),
    EvalStatus.LOAD_ERROR: ("broken", "does not load"),
    EvalStatus.COMPILE_ERROR: ("broken", "does not compile"),
    EvalStatus.RUNTIME_ERROR: ("broken", "fails when it runs"),
    EvalStatus.CRASH: ("broken", "its process died"),
    EvalStatus.TIMEOUT: ("broken", "takes too long"),
    EvalStatus.OOM: ("broken", "takes too much memory"),
    EvalStatus.INFRA_ERROR: ("lost", "not judged: the gym failed"),
    MISSING: ("lost", "no answer"),
}
"""For each status, its colour and its meaning."""


def known(value: float | None) -> float | None:
    """Return the value if it is a finite number, else None."""
    return value if value is not None and math.isfinite(value) else None


def factor(value: float | None) -> str:
    """Format a speedup."""
    value = known(value)
    return UNKNOWN if value is None else f"{value:.2f}x"


def percent(value: float | None) -> str:
    """Format a share."""
    value = known(value)
    return UNKNOWN if value is None else f"{value:.0%}"


def milliseconds(value: float | None) -> str:
    """Format a time in a suitable unit."""
    value = known(value)
    if value is None:
        return UNKNOWN
    if value < 0.9995:
        return f"{1e3 * value:.3g} µs"
    return f"{value:.3g} ms" if value < 999.5 else f"{1e-3 * value:.3g} s"


def estimate(found: Estimate, is_factor: bool) -> tuple[str, str]:
    """Format a figure and its interval; the interval is empty if there is none."""
    text = factor if is_factor else percent
    if found.low is None or found.high is None:
        return text(found.value), ""
    digits = ".2f" if is_factor else ".0f"
    low, high = (value if is_factor else 100 * value for value in (found.low, found.high))
    return text(found.value), f"{low:{digits}} to {high:{digits}}"
