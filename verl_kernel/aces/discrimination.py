# SPDX-License-Identifier: Apache-2.0
"""How well a test agrees with all other tests on which candidates are better: leave-one-out AUC (arXiv 2604.03922).

Without column j, a candidate i has the score s_i = sum over l != j of w_l B_il. The LOO-AUC of j is the probability
that a candidate which passes j has a higher score than one which fails it; ties count one half.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from verl_kernel.aces.table import Floats, Table

_TIE = 1e-12
"""Scores that differ by less than this, relative to the sum of weights, differ only by rounding."""


@dataclass(frozen=True)
class Discrimination:
    """Facts of each test, all of shape (m,)."""

    pass_rate: Floats
    auc: Floats
    """LOO-AUC; one half where all candidates pass or all fail, which tells nothing."""
    quality: Floats
    """p (1 - p) (auc - 1/2): expected above 0 if P(pass | right) > P(pass | wrong), where most tests are good."""


def gaps(table: Table, weights: Floats) -> Floats:
    """Return (n, n): the score of candidate i minus that of k, over the tests that both were run on."""
    ran = table.ran.astype(float)
    earned = (table.passed * weights) @ ran.T
    return np.asarray(earned - earned.T)


def discrimination(table: Table, weights: Floats) -> Discrimination:
    """Return the facts of all tests, identical columns included, for scores with these weights (m,)."""
    gap, tie = gaps(table, weights), _TIE * max(float(np.abs(weights).sum()), 1e-300)
    tests = range(table.passed.shape[1])
    edge = np.array([_edge(table, gap, float(weights[test]), test, tie) for test in tests])
    total = np.maximum(table.ran.sum(0), 1)
    rate, missed = table.passed.sum(0) / total, (table.ran & ~table.passed).sum(0) / total
    return Discrimination(rate, 0.5 + edge, rate * missed * edge)


def _edge(table: Table, gap: Floats, weight: float, test: int, tie: float) -> float:
    """Return the LOO-AUC minus one half."""
    better = np.flatnonzero(table.passed[:, test])
    worse = np.flatnonzero(table.ran[:, test] & ~table.passed[:, test])
    if not (better.size and worse.size):
        return 0.0
    without = gap[np.ix_(better, worse)] - weight
    above, below = np.count_nonzero(without > tie), np.count_nonzero(without < -tie)
    return 0.5 * float(above - below) / without.size
