# SPDX-License-Identifier: Apache-2.0
"""Formats figures and data for a page. An unknown value is a dash, never 0."""

from __future__ import annotations

import base64
import gzip
import json
import math
from typing import Any

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


def finite(value: float | None) -> float | None:
    """Return the value if it is a finite number, else None."""
    return value if value is not None and math.isfinite(value) else None


def factor(value: float | None) -> str:
    """Format a speedup."""
    value = finite(value)
    return UNKNOWN if value is None else f"{value:.2f}x"


def percent(value: float | None) -> str:
    """Format a share."""
    value = finite(value)
    return UNKNOWN if value is None else f"{value:.0%}"


def milliseconds(value: float | None) -> str:
    """Format a time in a suitable unit."""
    value = finite(value)
    if value is None:
        return UNKNOWN
    if value < 0.9995:
        return f"{1e3 * value:.3g} µs"
    return f"{value:.3g} ms" if value < 999.5 else f"{1e-3 * value:.3g} s"


def estimate(figure: Estimate, is_factor: bool) -> tuple[str, str]:
    """Format a figure and its interval; the interval is empty if there is none."""
    text = factor if is_factor else percent
    if figure.low is None or figure.high is None:
        return text(figure.value), ""
    digits = ".2f" if is_factor else ".0f"
    low, high = (value if is_factor else 100 * value for value in (figure.low, figure.high))
    return text(figure.value), f"{low:{digits}} to {high:{digits}}"


def packed(data: Any) -> str:
    """Return the data as gzipped JSON in base64: only letters, digits, `+`, `/` and `=`."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode("ascii"), mtime=0)).decode("ascii")


def cut_middle(text: str, limit: int) -> tuple[str, int]:
    """Cut the middle out of a text so that `limit` characters remain; return the text and the number cut."""
    left_out = len(text) - limit
    if left_out <= 0:
        return text, 0
    head = limit - limit // 3
    return f"{text[:head]}\n[... {left_out:,} characters left out ...]\n{text[head + left_out :]}", left_out
