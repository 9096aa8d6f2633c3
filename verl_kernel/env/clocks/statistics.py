# SPDX-License-Identifier: Apache-2.0
"""Statistics of a sample of times: its quantiles, and a confidence interval of its median.

The confidence interval of a median needs no assumption about the distribution: for independent times the number of
them below the true median is Binomial(n, 1/2), so the median lies between the order statistics k and n + 1 - k with
probability 1 - 2 P(B < k).
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import lru_cache
from math import comb

from verl_kernel.env.result import Comparison, Timing

AA_BAND = 0.02
"""Largest distance from 1 of the measured speedup of a program over itself. A speedup this close to 1 counts as 1."""


def timing(times: Sequence[float]) -> Timing:
    """Summarise a non-empty sample of milliseconds."""
    ordered = sorted(times)
    last = len(ordered) - 1
    return Timing(
        median=statistics.median(ordered),
        mean=statistics.fmean(ordered),
        n=len(ordered),
        p20=ordered[round(0.2 * last)],
        p80=ordered[round(0.8 * last)],
    )


@lru_cache(maxsize=512)
def median_rank(count: int, confidence: float = 0.95) -> int:
    """Return the largest k whose order statistics k and count + 1 - k (from 1) enclose the median with `confidence`.

    The result is 0 if not even the extremes do.
    """
    allowed, tail, rank = (1.0 - confidence) * 2**count, 0, 0
    while rank < count // 2:
        tail += comb(count, rank)
        if 2 * tail > allowed:
            break
        rank += 1
    return rank


def median_interval(times: Sequence[float], confidence: float = 0.95) -> tuple[float, float] | None:
    """Return the confidence interval of the median; None where the sample is too small for one."""
    rank = median_rank(len(times), confidence)
    if rank == 0:
        return None
    ordered = sorted(times)
    return ordered[rank - 1], ordered[-rank]


def compared(kernel: Sequence[float], reference: Sequence[float], confidence: float = 0.95) -> Comparison:
    """Compare the times of two programs and estimate the speedup.

    `speedup_low` is the reference's lower order statistic over the candidate's upper one. Each misses its median on
    that side with probability (1 - confidence) / 2 at most (Conover, Practical Nonparametric Statistics, 3.2), so by
    Bonferroni's inequality the ratio of the true medians is at least `speedup_low` with `confidence`, for all
    distributions and all dependence between the two samples. Calls must be independent within a sample; the rule that
    ends the rounds uses only the widths of intervals. A speedup within `AA_BAND` of 1 cannot be distinguished from
    none: there `speedup_low` is 1.

    Args:
        kernel: milliseconds of the candidate's calls, positive.
        reference: milliseconds of the reference's calls.
        confidence: confidence of `speedup_low`.
    """
    kernel_ms, reference_ms = timing(kernel), timing(reference)
    speedup = reference_ms.median / kernel_ms.median
    low = lowest_ratio(kernel, reference, confidence)
    if low is not None and is_parity(speedup):
        low = 1.0
    return Comparison(kernel_ms=kernel_ms, reference_ms=reference_ms, speedup=speedup, speedup_low=low)


def lowest_ratio(kernel: Sequence[float], reference: Sequence[float], confidence: float = 0.95) -> float | None:
    """Return a lower confidence bound of the reference's median over the candidate's; None if a sample is too small."""
    ours, theirs = median_interval(kernel, confidence), median_interval(reference, confidence)
    return None if ours is None or theirs is None else theirs[0] / ours[1]


def is_parity(speedup: float) -> bool:
    """Whether a measured speedup lies within the band of a program over itself (`AA_BAND`)."""
    return abs(speedup - 1.0) <= AA_BAND + 1e-12


def is_settled(times: Sequence[float], width: float = 0.01, confidence: float = 0.95) -> bool:
    """Whether the median's confidence interval is narrower than `width` times the median."""
    interval = median_interval(times, confidence)
    return interval is not None and interval[1] - interval[0] < width * statistics.median(times)
