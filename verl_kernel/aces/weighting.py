# SPDX-License-Identifier: Apache-2.0
"""Weights of tests: ACES-C in closed form, ACES-O by ascent (arXiv 2604.03922)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from verl_kernel.aces.ascent import ascend
from verl_kernel.aces.discrimination import discrimination
from verl_kernel.aces.table import Floats, Groups, Table
from verl_kernel.errors import DataError

_STARTS = ("c", "uniform")


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
    groups = Groups.find(table)
    kept = np.flatnonzero(table.is_informative[groups.first])
    if method not in ("c", "o"):
        raise DataError(f"the method of ACES is {method!r}: it must be c or o")
    voted = _largest(_checked("prior", prior, groups), groups)[kept]
    small = table.columns(groups.first[kept])
    found = np.maximum(discrimination(small, voted).quality, 0.0)
    objective: tuple[float, ...] = ()
    if method == "o":
        found, objective = _ascended(small, _start(init, found, groups, kept), temperature, steps)
    if not found.sum() > 0:
        return Weights(np.full(groups.number.size, 1 / groups.number.size), True, objective)
    values = np.zeros(groups.first.size)
    values[kept] = found / found.sum()
    return Weights(groups.spread(values), False, objective)


def _ascended(table: Table, start: Floats, temperature: float, steps: int) -> tuple[Floats, tuple[float, ...]]:
    if not start.size:
        return start, ()
    ended = ascend(table, start, temperature, steps)
    return ended.weights * (ended.objective[-1] > 0), ended.objective


def _start(init: str | ArrayLike, closed_form: Floats, groups: Groups, kept: np.ndarray) -> Floats:
    if isinstance(init, str):
        if init not in _STARTS:
            raise DataError(f"the start of ACES-O is {init!r}: it must be c, uniform or one weight for each test")
        start = closed_form if init == "c" else np.ones(kept.size)
    else:
        start = np.bincount(groups.number, _checked("init", init, groups))[kept]
    return start if start.sum() > 0 else np.ones(kept.size)


def _checked(name: str, given: ArrayLike | None, groups: Groups) -> Floats:
    values = np.ones(groups.number.size) if given is None else np.asarray(given, float)
    if values.shape != groups.number.shape or not (np.isfinite(values) & (values >= 0)).all():
        raise DataError(f"{name} must be one finite number of at least 0 for each of {groups.number.size} tests")
    return values


def _largest(values: Floats, groups: Groups) -> Floats:
    largest = np.zeros(groups.first.size)
    np.maximum.at(largest, groups.number, values)
    return largest
