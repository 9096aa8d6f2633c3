# SPDX-License-Identifier: Apache-2.0
"""How well predicted times agree with others."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

FACTORS = (1.25, 1.5, 2.0)


@dataclass(frozen=True)
class Agreement:
    """Of pairs of a predicted and another time."""

    count: int
    spearman: float
    """Correlation of ranks; ties share their mean rank."""
    median_ratio: float
    """Of predicted over other."""
    within: tuple[float, ...]
    """Shares whose ratio lies within each of `FACTORS`."""

    @classmethod
    def of(cls, pairs: Sequence[tuple[float, float]]) -> Agreement:
        """Compare at least two pairs (predicted, other)."""
        ours, theirs = zip(*pairs, strict=True)
        factors = [factor(*pair) for pair in pairs]
        return cls(
            len(pairs),
            statistics.correlation(ranks(ours), ranks(theirs)),
            statistics.median(mine / other for mine, other in pairs),
            tuple(sum(one <= limit for one in factors) / len(pairs) for limit in FACTORS),
        )


def ranks(values: Sequence[float]) -> list[float]:
    """The rank of each value, from 1; equal ones share their mean rank."""
    return [
        sum(other < value for other in values) + (sum(other == value for other in values) + 1) / 2 for value in values
    ]


def factor(ours: float, theirs: float) -> float:
    """How many times too long or too short a time is; at least 1."""
    return max(ours / theirs, theirs / ours)
