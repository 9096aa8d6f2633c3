# SPDX-License-Identifier: Apache-2.0
"""Effects that a study measures: two arms paired by seed, compared with the effect expected beforehand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from recipes.cpu_study.held_out import BEST
from recipes.cpu_study.plan import Comparison, Study, arms_of
from recipes.cpu_study.student import p_value, power
from recipes.cpu_study.summary import Interval, interval, last_turn
from verl_kernel.data.temperatures import MARK

Row = Mapping[str, Any]
PREFIX = "held_out/"
"""Prefix of the figures of a run's final validation, in the run's last row."""
FEWEST = 5
"""Fewest seeds for a decision."""
_ALPHA = 0.05
START = {
    "correct": "kernel/turn_{last}/correct_rate",
    "correct, first turn": "kernel/turn_1/correct_rate",
    "fast@1.2": "kernel/fast@1.2",
    "coverage": "kernel/time_coverage/mean",
    "decoys": "kernel/hack_rate",
}
"""The metric that gives a figure's start at step 1, before any update: over the samples of that step, and for the last
three figures over all turns. `useful speedup` has none."""


@dataclass(frozen=True)
class Effect:
    """The first arm's figure minus the second's, by seed."""

    differences: tuple[float, ...]
    seen: Interval
    """Mean of the differences and Student's 95 % interval."""
    ends: tuple[float, float]
    """Means of both arms after the last step."""
    starts: tuple[float | None, float | None]
    """Means of both arms at step 1, by `START`."""

    @property
    def p(self) -> float:
        """Return the two-sided p of Student's test that the mean difference is 0; 1 with a single seed."""
        return p_value(self.differences)

    def sign(self, expected: float, p: float) -> str:
        """Decide whether the effect has the expected sign.

        Args:
            expected: the effect with its sign.
            p: p value of this effect, corrected for the number of comparisons.

        Returns:
            `confirmed` or `refuted` where p is below 0.05, else `not decided`, as with fewer than five seeds.
        """
        if len(self.differences) < FEWEST or p >= _ALPHA:
            return "not decided"
        return "confirmed" if self.seen.mean * expected > 0 else "refuted"

    def size(self, expected: float) -> str:
        """Compare the 95 % interval with the expected effect, along the expected direction.

        Returns:
            `larger` or `smaller` where all of it is beyond or short of the expected effect, `as expected` where it
            holds the expected effect and not 0, else `not decided`, as with fewer than five seeds.
        """
        if len(self.differences) < FEWEST or self.seen.half is None:
            return "not decided"
        middle = math.copysign(1.0, expected) * self.seen.mean
        low, high = middle - self.seen.half, middle + self.seen.half
        if low > abs(expected):
            return "larger"
        if high < abs(expected):
            return "smaller"
        return "as expected" if low > 0 else "not decided"


def effect(rows: Sequence[Row], arms: tuple[str, str], figure: str) -> Effect | None:
    """Return the effect in a study's rows, over the seeds that all of its arms have finished; `None` without any.

    Runs of one seed are compared only if they started from the same weights.
    """
    first, second = (_by_pair(rows, side, figure) for side in arms)
    pairs = sorted(first.keys() & second.keys())
    if not pairs:
        return None
    differences = tuple(float(first[pair] - second[pair]) for pair in pairs)
    ends = (float(np.mean([found[pair] for pair in pairs])) for found in (first, second))
    starts = (_start(rows, arm, figure, [seed for seed, _ in pairs]) for arm in arms)
    return Effect(differences, interval(differences), (next(ends), next(ends)), (next(starts), next(starts)))


def _by_pair(rows: Sequence[Row], side: str, figure: str) -> dict[tuple[int, str], float]:
    """Return one side's figure, that of an arm or the mean of several, by seed and hash of the first weights."""
    found = [_of_arm(rows, arm, figure) for arm in arms_of(side)]
    shared = set.intersection(*map(set, found))
    return {pair: float(np.mean([own[pair] for own in found])) for pair in shared}


def _of_arm(rows: Sequence[Row], arm: str, figure: str) -> dict[tuple[int, str], float]:
    """Return an arm's figure by seed and hash of the first weights.

    At the best temperature, that of each pair is chosen by the others alone: a maximum over what it is itself compared
    by would be too high. A single pair has no others, and its own maximum.
    """
    split, mark, rest = figure.partition(f"{MARK}{BEST}/")
    if not mark:
        return {(row["seed"], row.get("model", "")): row[PREFIX + figure] for row in rows if _is_end(row, arm, figure)}
    keys = {key for row in rows for key in row if key.startswith(f"{PREFIX}{split}{MARK}") and key.endswith(f"/{rest}")}
    at = {key: _of_arm(rows, arm, key.removeprefix(PREFIX)) for key in sorted(keys)}
    pairs = set.intersection(*map(set, at.values())) if at else set()
    best = {}
    for pair in pairs:
        others = {key: [own[other] for other in pairs - {pair} or {pair}] for key, own in at.items()}
        best[pair] = at[max(others, key=lambda key: float(np.mean(others[key])))][pair]
    return best


def holm(found: Sequence[float]) -> list[float]:
    """Correct p values for their number (Holm, 1979): the smallest times n, the next times n - 1, never falling."""
    corrected = [0.0] * len(found)
    least = 0.0
    for rank, place in enumerate(sorted(range(len(found)), key=found.__getitem__)):
        least = max(least, min(1.0, (len(found) - rank) * found[place]))
        corrected[place] = least
    return corrected


def corrected(rows: Sequence[Row], comparisons: Sequence[Comparison]) -> dict[str, float]:
    """Return the corrected p of each comparison's primary figure, by name; only comparisons with at least two seeds.

    Comparisons that have not been run count, with a p of 1: which ones are run first may not hang on what was seen.
    """
    known = {one.name: effect(rows, one.arms, one.figure) for one in comparisons}
    run = {name: found.p for name, found in known.items() if found is not None and len(found.differences) > 1}
    planned = holm([run.get(one.name, 1.0) for one in comparisons])
    return {one.name: p for one, p in zip(comparisons, planned, strict=True) if one.name in run}


def power_table(study: Study) -> str:
    """Return a Markdown table: the chance of every comparison to be decided, if its effect is the expected one.

    The level is 0.05 over the number of comparisons, the strictest that Holm's method asks for. Without a
    deviation, or with a single seed, there is no power.
    """
    seeds, level = len(study.seeds), _ALPHA / max(1, len(study.comparisons))
    lines = ["| comparison | figure | expected | deviation of a seed | seeds | level | power |", "|" + "---|" * 7]
    for one in study.comparisons:
        assumed, found = "-", "-"
        if one.deviation is not None and seeds > 1:
            assumed, found = f"{one.deviation:.3f}", f"{power(one.expected, one.deviation, seeds, level):.2f}"
        lines.append(
            f"| {one.title} | {one.figure} | {one.expected:+.2f} | {assumed} | {seeds} | {level:.4f} | {found} |"
        )
    return "\n".join(lines) + "\n"


def effects_table(rows: Sequence[Row], comparisons: Sequence[Comparison]) -> str:
    """Return a Markdown table: every comparison's primary figure, then the others it names, which decide nothing."""
    ps = corrected(rows, comparisons)
    arms = {arm for one in comparisons for side in one.arms for arm in arms_of(side)}
    run = {row["arm"] for row in rows if any(key.startswith(PREFIX) for key in row)} & arms
    lines = [
        f"{len(ps)} of {len(comparisons)} comparisons and {len(run)} of {len(arms)} arms have been run. Each arm: the "
        "first step's samples, before any update (fast@1.2, coverage and decoys: of all turns), → the last weights on "
        "the validation's tasks. Effect: of the last weights, with Student's 95 % interval over seeds; p: two-sided, "
        f"by Holm for all {len(comparisons)} comparisons.",
        "",
        "| comparison | figure | first arm | second arm | effect | interval | seeds | p | expected | sign | size |",
        "|" + "---|" * 11,
    ]
    for one in comparisons:
        lines.append(_line(one.title, one.figure, effect(rows, one.arms, one.figure), one.expected, ps.get(one.name)))
        lines += [_line("", figure, effect(rows, one.arms, figure), None, None) for figure in one.also]
    return "\n".join(lines) + "\n"


def _line(title: str, figure: str, found: Effect | None, expected: float | None, p: float | None) -> str:
    wanted = "" if expected is None else f"{expected:+.2f}"
    if found is None:
        verdicts = "| | |" if expected is None else "| not run | |"
        return f"| {title} | {figure} | - | - | - | - | 0 | | {wanted} {verdicts}"
    arms = " | ".join(_way(start, end) for start, end in zip(found.starts, found.ends, strict=True))
    half = found.seen.half
    between = "-" if half is None else f"{found.seen.mean - half:+.3f} to {found.seen.mean + half:+.3f}"
    said = (
        "| | " if expected is None else f"| {found.sign(expected, 1.0 if p is None else p)} | {found.size(expected)} "
    )
    seen = f"{arms} | {found.seen.mean:+.3f} | {between} | {len(found.differences)}"
    return f"| {title} | {figure} | {seen} | {'' if p is None else _p(p)} | {wanted} {said}|"


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _way(start: float | None, end: float) -> str:
    return f"{end:.3f}" if start is None else f"{start:.3f} → {end:.3f}"


def _start(rows: Sequence[Row], arm: str, figure: str, seeds: Sequence[int]) -> float | None:
    first = [row for row in rows if row["arm"] == arm and row["step"] == 1 and row["seed"] in seeds]
    found = [row.get(START.get(figure, "").format(last=last_turn(row))) for row in first]
    known = [value for value in found if value is not None]
    return float(np.mean(known)) if known and len(known) == len(seeds) else None


def _is_end(row: Row, arm: str, figure: str) -> bool:
    return row["arm"] == arm and PREFIX + figure in row
