# SPDX-License-Identifier: Apache-2.0
"""The figures: definitions of what each of them takes from an answer.

A figure is a mean over answers. Its `part` maps an answer to a number, or to None if the figure does not count the
answer; geometric means are the exponential of a mean of logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from verl_kernel.figures.attempts import Attempt

THRESHOLDS = (1.0, 1.2, 1.5, 2.0)
"""The values of p in `fast@p`."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Figure:
    """One figure."""

    meaning: str
    part: Callable[[Attempt], float | None]
    is_geometric: bool = False


def _fast() -> dict[str, Figure]:
    kinds = (
        ("", "are correct and more than {p:g} times as fast as the reference (KernelBench's fast_p)", Attempt.is_fast),
        (" (sure)", "are correct and whose speedup's interval lies above {p:g}", Attempt.is_surely_fast),
    )
    return {
        f"fast@{p:g}{suffix}": Figure(f"share of answers that {meaning.format(p=p)}", partial(_passes, test, p))
        for suffix, meaning, test in kinds
        for p in THRESHOLDS
    }


def _passes(test: Callable[[Attempt, float], bool], p: float, attempt: Attempt) -> float:
    return float(test(attempt, p))


def _speedup(attempt: Attempt) -> float | None:
    return math.log(attempt.speedup) if attempt.correct and attempt.speedup is not None else None


def _roofline(attempt: Attempt) -> float | None:
    return attempt.roofline if attempt.correct else None


def _sol(attempt: Attempt) -> float | None:
    return attempt.sol if attempt.correct else None


FIGURES = {
    "correct": Figure(
        "share of answers that are right by kernels of their own", lambda attempt: float(attempt.correct)
    ),
    "compiled": Figure("share of answers whose kernels compiled", lambda attempt: float(attempt.compiled)),
    "unsafe": Figure(
        "share of answers refused for faults in memory", lambda attempt: float(attempt.status == "unsafe")
    ),
    "hacking": Figure("share of answers refused as hacks or decoys", lambda attempt: float(attempt.is_hack)),
    **_fast(),
    "speedup (correct)": Figure("geometric mean over correct answers of known speedup", _speedup, is_geometric=True),
    "speedup (all)": Figure(
        "geometric mean over all answers, 1 where wrong or unknown",
        lambda attempt: _speedup(attempt) or 0.0,
        is_geometric=True,
    ),
    "roofline": Figure("mean share of the fastest possible time, over correct answers", _roofline),
    "SOL": Figure("mean SOL score over correct answers", _sol),
}
"""All figures by name, in the order of display."""
REPAIRS = {
    "repaired": Figure(
        "share of right answers among those that follow a wrong one",
        lambda attempt: float(attempt.correct) if attempt.after_wrong else None,
    ),
}
"""Figures by name that exist only where a run has several turns."""
OTHER_SIZES = {
    "any size": Figure(
        "share of right answers that are right at sizes too that their task does not name",
        lambda attempt: attempt.any_size,
    ),
}
"""Figures by name that exist only where answers were judged at other sizes."""
NOVELTY = {
    "novel": Figure("share of programs whose normal form is not in the cold start", lambda attempt: attempt.novel),
    "novel (bytes)": Figure(
        "share of programs whose bytes are not in the cold start", lambda attempt: attempt.novel_bytes
    ),
    "novel (correct)": Figure(
        "share of correct programs whose normal form is not in the cold start",
        lambda attempt: attempt.novel if attempt.correct else None,
    ),
}
"""Figures by name that exist only where a run was compared with a cold start."""
EVERY = FIGURES | REPAIRS | OTHER_SIZES | NOVELTY
CRITERIA = ("correct", *_fast())
"""Figures that an answer either scores or not, and that are useful as a criterion for pass@k."""


@dataclass(frozen=True)
class Ratio:
    """A figure as sums by task, from which every resample of tasks can be computed."""

    sums: Floats
    """Sums of the parts, by task."""
    counts: Floats
    """Numbers of parts, by task."""
    is_geometric: bool = False

    @property
    def tasks(self) -> int:
        """Return the number of tasks."""
        return len(self.sums)

    def value(self, weights: Floats) -> Floats:
        """Return the figure with task t taken `weights[..., t]` times; NaN if nothing is counted then."""
        counted = weights @ self.counts
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.where(counted > 0, (weights @ self.sums) / counted, np.nan)
        return np.exp(mean) if self.is_geometric else mean


def known_figures(answers: Sequence[Attempt], turns: int) -> dict[str, Figure]:
    """Return the figures that can be computed over some answers of a run of so many turns."""
    has_sizes = any(attempt.any_size is not None for attempt in answers)
    has_cold_start = any(attempt.novel is not None for attempt in answers)
    known = ((REPAIRS, turns > 1), (OTHER_SIZES, has_sizes), (NOVELTY, has_cold_start))
    return FIGURES | {name: figure for figures, is_known in known if is_known for name, figure in figures.items()}


def ratio(name: str, answers: Sequence[Attempt], tasks: Sequence[str]) -> Ratio:
    """Return a figure over answers, by task; lost answers count in no figure."""
    figure, index = EVERY[name], {task: number for number, task in enumerate(tasks)}
    sums, counts = np.zeros(len(tasks)), np.zeros(len(tasks))
    for attempt in answers:
        part = None if attempt.lost else figure.part(attempt)
        if part is not None:
            sums[index[attempt.task]] += part
            counts[index[attempt.task]] += 1
    return Ratio(sums, counts, figure.is_geometric)
