# SPDX-License-Identifier: Apache-2.0
"""Effects that a study was made to find: two arms paired by seed, against what was expected of them beforehand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from verl_kernel.study.plan import Comparison

Row = Mapping[str, Any]
PREFIX = "held_out/"
"""Of the held-out figures in a run's last row."""
_RESAMPLES = 10_000
_FEWEST = 3
"""Seeds below which nothing is decided."""


@dataclass(frozen=True)
class Effect:
    """The first arm's figure less the second's: its mean over seeds and a 95 % interval."""

    differences: tuple[float, ...]
    """By seed."""
    low: float
    high: float

    @property
    def mean(self) -> float:
        """Mean of the differences."""
        return float(np.mean(self.differences))

    def verdict(self, expected: float) -> str:
        """What the interval says of an expected effect.

        `confirmed`: all of it has the expected sign. `refuted`: all of it has the other one, or is nearer to 0 than the
        expected effect. Else `not decided`, as with fewer than three seeds.
        """
        sign = 1.0 if expected > 0 else -1.0
        low, high = sorted((sign * self.low, sign * self.high))
        if len(self.differences) < _FEWEST:
            return "not decided"
        if low > 0:
            return "confirmed" if sign * self.mean >= abs(expected) else "confirmed, smaller than expected"
        if high < 0:
            return "refuted: the other way"
        return "refuted: less than expected" if high < abs(expected) else "not decided"


def effect(rows: Sequence[Row], arms: tuple[str, str], figure: str) -> Effect | None:
    """The effect in a study's rows, over the seeds that both arms have finished.

    The interval resamples seeds: percentiles 2.5 and 97.5 of 10,000 means, from a fixed generator.
    """
    first, second = ({row["seed"]: row[PREFIX + figure] for row in rows if _is_end(row, arm, figure)} for arm in arms)
    seeds = sorted(first.keys() & second.keys())
    if not seeds:
        return None
    differences = np.array([first[seed] - second[seed] for seed in seeds])
    drawn = np.random.default_rng(0).integers(len(seeds), size=(_RESAMPLES, len(seeds)))
    low, high = np.percentile(differences[drawn].mean(axis=1), [2.5, 97.5])
    return Effect(tuple(float(value) for value in differences), float(low), float(high))


def effects_table(rows: Sequence[Row], comparisons: Sequence[Comparison]) -> str:
    """A Markdown table: every comparison's primary figure, then the others it names."""
    lines = [
        f"{len(comparisons)} comparisons of the last weights on held-out tasks; 95 % intervals: bootstrap over seeds.",
        "",
        "| comparison | figure | expected | seen | interval | seeds | verdict |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in comparisons:
        for figure in (one.figure, *one.also):
            is_primary = figure == one.figure
            lines.append(_line(one, figure, effect(rows, one.arms, figure), one.expected if is_primary else None))
    return "\n".join(lines) + "\n"


def _line(one: Comparison, figure: str, found: Effect | None, expected: float | None) -> str:
    title, wanted = (one.title, f"{expected:+.2f}") if expected is not None else ("", "")
    if found is None:
        return f"| {title} | {figure} | {wanted} | - | - | 0 | {'not run' if expected is not None else ''} |"
    verdict = found.verdict(expected) if expected is not None else ""
    seen = f"{found.mean:+.3f} | {found.low:+.3f} to {found.high:+.3f} | {len(found.differences)}"
    return f"| {title} | {figure} | {wanted} | {seen} | {verdict} |"


def _is_end(row: Row, arm: str, figure: str) -> bool:
    return row["arm"] == arm and PREFIX + figure in row
