# SPDX-License-Identifier: Apache-2.0
"""Student's test of a mean over seeds: its quantile, its p and its power."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from scipy.stats import nct, t


def quantile(freedom: int) -> float:
    """Return the 97.5 % quantile: half the width of a 95 % interval in standard errors of the mean."""
    return float(t.ppf(0.975, freedom))


def p_value(values: Sequence[float]) -> float:
    """Return the two-sided p for a mean of 0 of independent normal values; 1 for a single value."""
    if len(values) < 2:
        return 1.0
    mean, error = statistics.fmean(values), statistics.stdev(values) / math.sqrt(len(values))
    if error == 0.0:
        return 0.0 if mean else 1.0
    return float(2 * t.sf(abs(mean / error), len(values) - 1))


def power(effect: float, deviation: float, seeds: int, level: float) -> float:
    """Return the probability that the test finds an effect, of either sign.

    Args:
        effect: true mean of the differences between two arms.
        deviation: standard deviation of the difference of one seed, positive.
        seeds: number of seeds, at least 2.
        level: the test's level, two-sided.
    """
    edge, shift = t.isf(level / 2, seeds - 1), abs(effect) / deviation * math.sqrt(seeds)
    # The lower tail is the upper one of the mirrored distribution: `nct.cdf` of it is NaN where it is very small.
    return float(nct.sf(edge, seeds - 1, shift) + nct.sf(edge, seeds - 1, -shift))
