# SPDX-License-Identifier: Apache-2.0
"""Round numbers for the axes of a chart."""

from __future__ import annotations

import math
from collections.abc import Sequence

_TOPS = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)


def round_marks(low: float, high: float, most: int = 5, *, whole: bool = False) -> list[float]:
    """Return evenly spaced round numbers between two ends, about `most` at most; only whole ones if `whole`."""
    step = _round_step((high - low) / max(1, most - 1), whole)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def around(values: Sequence[float], most: int = 5) -> list[float]:
    """Return round numbers from 0, or from below the lowest value, to at least the highest one."""
    low, high = min([0.0, *values]), max([0.0, *values])
    step = _round_step((high - low) / max(1, most - 1), whole=False) if high > low else 1.0
    first, last = math.floor(low / step + 1e-9), max(1, math.ceil(high / step - 1e-9))
    return [number * step for number in range(first, last + 1)]


def of_shares(values: Sequence[float]) -> list[float]:
    """Return quarters of the next of 5, 10, 20, 40, ... 100 % above the values."""
    highest = max(values, default=0.0)
    top = next((one for one in _TOPS if round(highest, 3) <= one), 1.0)
    return [top * part / 4 for part in range(5)]


def _round_step(least: float, whole: bool) -> float:
    """Return the next of 1, 2, 5, 10, ... times a power of ten."""
    if whole and least <= 1:
        return 1.0
    power = 10.0 ** math.floor(math.log10(least)) if least > 0 else 1.0
    return next(power * part for part in (1, 2, 5, 10) if power * part >= least * (1 - 1e-9))
