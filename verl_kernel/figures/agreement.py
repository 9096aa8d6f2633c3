# SPDX-License-Identifier: Apache-2.0
"""How well predicted times agree with measured ones."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import exp, log, nan

FACTORS = (1.25, 1.5, 2.0)
"""Factors by which a prediction may be off; the share of kernels within each is reported."""


@dataclass(frozen=True)
class TimeAgreement:
    """Of pairs of a predicted and a measured time."""

    count: int
    spearman: float
    """Correlation of ranks; ties share their mean rank. NaN where all times are equal."""
    median_ratio: float
    """Of predicted over measured."""
    mean_ratio: float
    """The geometric mean of the same."""
    within: tuple[float, ...]
    """Shares whose ratio lies within each of `FACTORS`."""

    @classmethod
    def of(cls, pairs: Sequence[tuple[float, float]]) -> TimeAgreement:
        """Compare at least one pair (predicted, measured)."""
        predicted, measured = zip(*pairs, strict=True)
        ratios = [prediction / measurement for prediction, measurement in pairs]
        factors = [factor(*pair) for pair in pairs]
        return cls(
            count=len(pairs),
            spearman=_correlation(ranks(predicted), ranks(measured)),
            median_ratio=statistics.median(ratios),
            mean_ratio=exp(statistics.fmean(map(log, ratios))),
            within=tuple(sum(ratio <= limit for ratio in factors) / len(pairs) for limit in FACTORS),
        )


@dataclass(frozen=True)
class PredictedOrder:
    """Whether the kernels of one task are predicted in the order of their measured times."""

    pairs: int
    in_order: int
    """Pairs of a task whose predicted times differ in the same direction as the measured ones."""
    regrets: tuple[float, ...]
    """By task, how much longer than the fastest kernel the one takes that is predicted to be fastest; 1 is none."""

    @classmethod
    def of(cls, tasks: Iterable[Sequence[tuple[float, float]]]) -> PredictedOrder:
        """Compare the pairs (predicted, measured) of each task; pairs of equal measured times count as none."""
        several = [task for task in tasks if len(task) > 1]
        differing = [pair for task in several for pair in combinations(task, 2) if pair[0][1] != pair[1][1]]
        return cls(
            pairs=len(differing),
            in_order=sum((first[0] - second[0]) * (first[1] - second[1]) > 0 for first, second in differing),
            regrets=tuple(min(task)[1] / min(measured for _, measured in task) for task in several),
        )


def ranks(values: Sequence[float]) -> list[float]:
    """Return the rank of each value, from 1; equal ones share their mean rank."""
    return [sum(peer < value for peer in values) + (sum(peer == value for peer in values) + 1) / 2 for value in values]


def factor(predicted: float, measured: float) -> float:
    """Return how many times too long or too short a time is; at least 1."""
    return max(predicted / measured, measured / predicted)


def _correlation(xs: Sequence[float], ys: Sequence[float]) -> float:
    try:
        return statistics.correlation(xs, ys)
    except statistics.StatisticsError:  # fewer than two values, or all of them equal
        return nan
