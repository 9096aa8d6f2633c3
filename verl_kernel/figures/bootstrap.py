# SPDX-License-Identifier: Apache-2.0
"""Percentile bootstrap by task: tasks are drawn with replacement, each with all of its samples and turns.

Samples of one task are alike, so an interval that resampled answers would be too narrow (Efron and Tibshirani, An
Introduction to the Bootstrap, chapters 8 and 13).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from verl_kernel.figures.figures import Floats, Ratio
from verl_kernel.figures.record import Estimate

RESAMPLES, CONFIDENCE, SEED = 2000, 0.95, 0
"""The usual number of resamples, confidence of an interval, and seed."""


@dataclass(frozen=True)
class Bootstrap:
    """How intervals are drawn; equal settings and equal numbers of tasks lead to the same draws."""

    resamples: int = RESAMPLES
    confidence: float = CONFIDENCE
    seed: int = SEED

    def estimates(self, figures: Mapping[str, Ratio]) -> dict[str, Estimate]:
        """Return the figures with their intervals; a figure's interval ignores resamples in which it counts nothing."""
        return {
            name: self.estimate(float(figure.value(np.ones(figure.tasks))), self.resampled(figure))
            for name, figure in figures.items()
        }

    def resampled(self, figure: Ratio) -> Floats:
        """Return the figure in every resample, NaN where nothing is counted; shape (resamples,), empty for one task."""
        return figure.value(drawn_tasks(self.seed, self.resamples, figure.tasks)) if figure.tasks > 1 else np.empty(0)

    def estimate(self, value: float, resampled: Floats) -> Estimate:
        """Return a figure with the percentile interval of its resamples, ignoring NaN."""
        defined = resampled[~np.isnan(resampled)]
        if np.isnan(value) or not defined.size:
            return Estimate(value=None if np.isnan(value) else value)
        tail = 50.0 * (1.0 - self.confidence)
        low, high = np.percentile(defined, [tail, 100.0 - tail])
        return Estimate(value=value, low=float(low), high=float(high))


@lru_cache(maxsize=8)
def drawn_tasks(seed: int, resamples: int, tasks: int) -> Floats:
    """Return how often each resample takes each task; shape (resamples, tasks)."""
    draws = np.random.default_rng(seed).integers(tasks, size=(resamples, tasks))
    # One count for all resamples: those of each have numbers of their own.
    cells = draws + tasks * np.arange(resamples)[:, None]
    counts = np.bincount(cells.ravel(), minlength=resamples * tasks).reshape(resamples, tasks)
    weights = counts.astype(np.float64)
    weights.flags.writeable = False
    return weights
