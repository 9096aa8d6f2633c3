# SPDX-License-Identifier: Apache-2.0
"""Student's distribution: its tails, its quantile and the test of a mean, from finite sums."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from functools import lru_cache


def both_tails(t: float, freedom: int) -> float:
    """Return the probability of a value at least as far from 0 as `t` (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan(abs(t) / math.sqrt(freedom))
    square = math.cos(angle) ** 2
    is_odd = freedom % 2
    term = math.cos(angle) if is_odd else 1.0
    total = 0.0
    for power in range(1 if is_odd else 0, freedom - 1, 2):
        total += term
        term *= square * (power + 1) / (power + 2)
    inner = math.sin(angle) * total
    return max(0.0, 1.0 - (2.0 / math.pi * (angle + inner) if is_odd else inner))


@lru_cache
def quantile(freedom: int) -> float:
    """Return the 97.5 % quantile: half the width of a 95 % interval in standard errors of the mean."""
    low, high = 1.0, 16.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if both_tails(middle, freedom) > 0.05 else (low, middle)
    return high


def p_value(values: Sequence[float]) -> float:
    """Return the two-sided p for a mean of 0 of independent normal values; 1 for a single value."""
    if len(values) < 2:
        return 1.0
    mean, error = statistics.fmean(values), statistics.stdev(values) / math.sqrt(len(values))
    if error == 0.0:
        return 0.0 if mean else 1.0
    return both_tails(mean / error, len(values) - 1)
