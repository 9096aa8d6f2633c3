# SPDX-License-Identifier: Apache-2.0
"""Weights of tests: ACES-C in closed form, ACES-O by ascent (arXiv 2604.03922).

Both rest on the leave-one-out AUC, which says how well a test agrees with all others on which candidates are better.
Without column j, a candidate i has the score s_i = sum over l != j of w_l B_il. The LOO-AUC of j is the probability
that a candidate which passes j has a higher score than one which fails it; ties count one half.

ACES-O maximises J(w) = sum_j w_j (A_j(w) - 1/2), where A_j is the LOO-AUC with the step replaced by a logistic function
of (gap / temperature). Temperature, optimiser and steps are choices of this package: temperature .05,
w = softmax(theta), and theta moves along dJ/dw only if J rises. The step size doubles after an accepted step and halves
after a rejected one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from verl_kernel.aces.table import Floats, IdenticalTests, Table
from verl_kernel.errors import DataError

_TIE = 1e-12
"""Scores that differ by less than this, relative to the sum of weights, differ only by rounding."""
_FIRST_STEP, _LEAST_STEP = 1.0, 1e-6
"""Step size with which the ascent begins, and below which it ends."""
_LEAST_GAIN = 1e-9
"""Gain of J below which the ascent ends."""
_FLOOR = 1e-3
"""Share of the uniform weights mixed into every start: a softmax cannot leave a weight of 0."""
_STARTS = ("c", "uniform")


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
    edge = np.array([_excess_auc(table, gap, float(weights[test]), test, tie) for test in tests])
    total = np.maximum(table.ran.sum(0), 1)
    rate, missed = table.passed.sum(0) / total, (table.ran & ~table.passed).sum(0) / total
    return Discrimination(rate, 0.5 + edge, rate * missed * edge)


def _excess_auc(table: Table, gap: Floats, weight: float, test: int, tie: float) -> float:
    """Return the LOO-AUC minus one half."""
    better = np.flatnonzero(table.passed[:, test])
    worse = np.flatnonzero(table.ran[:, test] & ~table.passed[:, test])
    if not (better.size and worse.size):
        return 0.0
    without = gap[np.ix_(better, worse)] - weight
    above, below = np.count_nonzero(without > tie), np.count_nonzero(without < -tie)
    return 0.5 * float(above - below) / without.size


@dataclass(frozen=True)
class Ascent:
    """The weights at the end of the climb, and J at the start and after each accepted step."""

    weights: Floats
    objective: tuple[float, ...]


def ascend(table: Table, start: Floats, temperature: float = 0.05, steps: int = 60) -> Ascent:
    """Climb from `start` (m,), a point of the simplex. A single test keeps its weight.

    Args:
        table: tests that each tell some candidates apart.
        start: weights of the tests.
        temperature: temperature of the logistic function, on scores between 0 and 1.
        steps: largest number of steps tried, accepted or not.
    """
    theta = np.log((1 - _FLOOR) * start / start.sum() + _FLOOR / start.size)
    weights = _softmax(theta)
    value, slope = objective(table, weights, temperature)
    values, length = [value], _FIRST_STEP
    for _ in range(steps):
        tried = theta + length * slope
        tried_value, tried_slope = objective(table, _softmax(tried), temperature)
        if tried_value <= value:
            length /= 2
            if length < _LEAST_STEP:
                break
            continue
        gain = tried_value - value
        theta, value, slope, length = tried, tried_value, tried_slope, 2 * length
        values.append(value)
        if gain < _LEAST_GAIN:
            break
    return Ascent(_softmax(theta), tuple(values))


def objective(table: Table, weights: Floats, temperature: float) -> tuple[float, Floats]:
    """Return J and its gradient (m,) with respect to the weights; each test's own weight is left out of its scores."""
    gap, value, slope = gaps(table, weights), 0.0, np.zeros(weights.size)
    passed, ran = table.passed.astype(float), table.ran.astype(float)
    for test in np.flatnonzero(table.is_informative):
        better = np.flatnonzero(table.passed[:, test])
        worse = np.flatnonzero(table.ran[:, test] & ~table.passed[:, test])
        chance = _logistic((gap[np.ix_(better, worse)] - weights[test]) / temperature)
        excess = float(chance.mean()) - 0.5
        pull = chance * (1 - chance) / (temperature * chance.size)
        by_weight = ((pull @ ran[worse]) * passed[better]).sum(0) - ((pull.T @ ran[better]) * passed[worse]).sum(0)
        by_weight[test] = 0.0
        value += float(weights[test]) * excess
        slope += weights[test] * by_weight
        slope[test] += excess
    return value, slope


def _softmax(theta: Floats) -> Floats:
    raised = np.exp(theta - theta.max())
    return np.asarray(raised / raised.sum())


def _logistic(values: Floats) -> Floats:
    return np.asarray(0.5 * (1 + np.tanh(values / 2)))


@dataclass(frozen=True)
class Weights:
    """The weights of tests."""

    values: Floats
    """(m,), all at least 0, sum 1. Tests with identical columns share the weight of one."""
    degenerate: bool
    """Whether no test agrees with the others; then `values` is uniform over all tests, which is majority voting."""
    objective: tuple[float, ...] = ()
    """J at the start and after each accepted step of method "o"."""


def weights(
    matrix: ArrayLike,
    method: str = "c",
    mask: ArrayLike | None = None,
    prior: ArrayLike | None = None,
    *,
    init: str | ArrayLike = "c",
    temperature: float = 0.05,
    steps: int = 60,
) -> Weights:
    """Weigh tests by how well they agree with the others on which candidates are better.

    Tests that all candidates pass, or all fail, get 0 and change nothing; identical columns are weighed as one. With
    method "c" a weight is max(0, p (1 - p) (LOO-AUC - 1/2)), normalised to sum 1; with "o" it maximises J (`ascent`).
    If no test has a weight left (or J is not above 0), the weights are uniform and marked `degenerate`.

    Args:
        matrix: (n, m), candidates by tests; 1 for passed, 0 for failed, crashed or out of time.
        method: "c" or "o".
        mask: (n, m); false where a candidate was never run on a test. A pair of candidates is compared on the
            tests that both were run on.
        prior: (m,), the tests' weights in the scores of "c"; ones by default. Identical columns take their largest one.
        init: start of "o": "c" (its weights), "uniform", or weights (m,).
        temperature: temperature of the logistic function in "o".
        steps: largest number of steps tried in "o".

    Raises:
        DataError: shapes do not fit, or a value is not of its kind.
    """
    table = Table.read(matrix, mask)
    groups = IdenticalTests.find(table)
    informative = np.flatnonzero(table.is_informative[groups.first])
    if method not in ("c", "o"):
        raise DataError(f"the method of ACES is {method!r}: it must be c or o")
    voted = _group_maxima(_checked_vector("prior", prior, groups), groups)[informative]
    small = table.columns(groups.first[informative])
    quality = np.maximum(discrimination(small, voted).quality, 0.0)
    objective: tuple[float, ...] = ()
    if method == "o":
        quality, objective = _ascended(small, _start(init, quality, groups, informative), temperature, steps)
    if not quality.sum() > 0:
        return Weights(np.full(groups.number.size, 1 / groups.number.size), True, objective)
    values = np.zeros(groups.first.size)
    values[informative] = quality / quality.sum()
    return Weights(groups.spread(values), False, objective)


def _ascended(table: Table, start: Floats, temperature: float, steps: int) -> tuple[Floats, tuple[float, ...]]:
    if not start.size:
        return start, ()
    ended = ascend(table, start, temperature, steps)
    return ended.weights * (ended.objective[-1] > 0), ended.objective


def _start(init: str | ArrayLike, closed_form: Floats, groups: IdenticalTests, informative: np.ndarray) -> Floats:
    if isinstance(init, str):
        if init not in _STARTS:
            raise DataError(f"the start of ACES-O is {init!r}: it must be c, uniform or one weight for each test")
        start = closed_form if init == "c" else np.ones(informative.size)
    else:
        start = np.bincount(groups.number, _checked_vector("init", init, groups))[informative]
    return start if start.sum() > 0 else np.ones(informative.size)


def _checked_vector(name: str, numbers: ArrayLike | None, groups: IdenticalTests) -> Floats:
    values = np.ones(groups.number.size) if numbers is None else np.asarray(numbers, float)
    if values.shape != groups.number.shape or not (np.isfinite(values) & (values >= 0)).all():
        raise DataError(f"{name} must be one finite number of at least 0 for each of {groups.number.size} tests")
    return values


def _group_maxima(values: Floats, groups: IdenticalTests) -> Floats:
    largest = np.zeros(groups.first.size)
    np.maximum.at(largest, groups.number, values)
    return largest
