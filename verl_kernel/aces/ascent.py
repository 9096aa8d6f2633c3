# SPDX-License-Identifier: Apache-2.0
"""ACES-O: weights that maximise agreement with each other (arXiv 2604.03922).

J(w) = sum_j w_j (A_j(w) - 1/2), where A_j is the LOO-AUC with the step replaced by a logistic function of
(gap / temperature). Temperature, optimiser and steps are choices of this package: temperature .05, w = softmax(theta),
and theta moves along dJ/dw only if J rises. The step size doubles after an accepted step and halves after a rejected
one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from verl_kernel.aces.discrimination import gaps
from verl_kernel.aces.table import Floats, Table

_FIRST_STEP, _LEAST_STEP = 1.0, 1e-6
_LEAST_GAIN = 1e-9
_FLOOR = 1e-3
"""Share of the uniform weights mixed into every start: a softmax cannot leave a weight of 0."""


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
