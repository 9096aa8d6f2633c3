# SPDX-License-Identifier: Apache-2.0
"""Scores of candidates, the choice of those to keep, and the facts that ACES finds about each test, as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from verl_kernel.aces.table import Floats, IdenticalTests, Table
from verl_kernel.aces.weighting import Weights, discrimination, weights
from verl_kernel.errors import DataError

_DIGITS = 9
"""Scores that differ by less than this are equal, and the faster candidate comes first."""


def scores(matrix: ArrayLike, weights: Weights | ArrayLike, mask: ArrayLike | None = None) -> Floats:
    """Score each candidate, (n,): the sum of the weights of the tests it passed.

    With a mask, the sum covers the tests that a candidate was run on and is scaled up for the missing weight. A
    candidate that was run on no test scores 0.

    Args:
        matrix: (n, m), as in `weights`.
        weights: (m,), or what `weights` returned.
        mask: (n, m), as in `weights`.

    Raises:
        DataError: shapes do not fit.
    """
    table = Table.read(matrix, mask)
    values = weights.values if isinstance(weights, Weights) else np.asarray(weights, float)
    if values.shape != table.passed.shape[1:]:
        raise DataError(f"weights have shape {values.shape}: give one for each of {table.passed.shape[1]} tests")
    earned, possible = table.passed @ values, table.ran @ values
    share = np.divide(earned, possible, out=np.zeros_like(earned), where=possible > 0)
    return np.asarray(np.where(table.ran.all(1), earned, share * values.sum()))


def select(
    matrix: ArrayLike,
    speed: Sequence[float | None] | None = None,
    k: int = 1,
    *,
    passed: Sequence[bool] | None = None,
    method: str = "c",
    mask: ArrayLike | None = None,
    prior: ArrayLike | None = None,
) -> list[int]:
    """Choose at most `k` candidates: among those that pass, by score and then by speed.

    Args:
        matrix: (n, m), as in `weights`; includes the candidates that do not pass, because they help to weigh the tests.
        speed: (n,) speedups; None where unknown, which sorts last.
        k: how many to choose.
        passed: (n,) verdicts of the reference; a failed candidate is never chosen. None if all passed.
        method: as in `weights`.
        mask: as in `weights`.
        prior: as in `weights`.

    Returns:
        Row numbers, the best first; equal candidates in the order of their rows. Empty if none passed.

    Raises:
        DataError: shapes do not fit.
    """
    totals = scores(matrix, weights(matrix, method, mask, prior), mask)
    speeds = [None] * totals.size if speed is None else list(speed)
    fit = [True] * totals.size if passed is None else list(passed)
    if len(speeds) != totals.size or len(fit) != totals.size:
        raise DataError(f"speed and passed must have one value for each of {totals.size} candidates")
    ranked = sorted(
        np.flatnonzero(fit), key=lambda row: (-round(float(totals[row]), _DIGITS), -_sort_speed(speeds[row]))
    )
    return [int(row) for row in ranked[:k]]


def _sort_speed(speed: float | None) -> float:
    return float("-inf") if speed is None or np.isnan(speed) else float(speed)


def report(
    matrix: ArrayLike, method: str = "c", mask: ArrayLike | None = None, prior: ArrayLike | None = None
) -> dict[str, Any]:
    """Return facts of a table and of each of its tests, as numbers, strings and lists only, so that JSON can hold them.

    A test is of one of five kinds: `all_pass` and `all_fail` tell no candidates apart; `agrees`, `neutral` and
    `backwards` have a LOO-AUC above, at or below one half against the other tests, identical ones counted once. A test
    that is `backwards` need not be wrong: a test that alone rejects candidates which pass all others looks the same.

    Args:
        matrix: (n, m), as in `weights`.
        method: as in `weights`.
        mask: as in `weights`.
        prior: as in `weights`.

    Raises:
        DataError: shapes do not fit, or a value is not of its kind.
    """
    table, weighting = Table.read(matrix, mask), weights(matrix, method, mask, prior)
    groups = IdenticalTests.find(table)
    facts = discrimination(table.columns(groups.first), np.ones(groups.first.size))
    tests = []
    for test, group in enumerate(groups.number):
        first, auc = int(groups.first[group]), float(facts.auc[group])
        tests.append(
            {
                "pass_rate": float(facts.pass_rate[group]),
                "auc": auc,
                "weight": float(weighting.values[test]),
                "kind": _kind(table, test, auc),
                "same_as": None if first == test else first,
            }
        )
    candidates, count = table.passed.shape
    shares = np.bincount(groups.number, weighting.values)
    return {
        "candidates": candidates,
        "tests": count,
        "distinct_tests": int(groups.first.size),
        "effective_tests": float(1 / np.square(shares).sum()),
        "degenerate": weighting.degenerate,
        "columns": tests,
    }


def _kind(table: Table, test: int, auc: float) -> str:
    if not table.is_informative[test]:
        return "all_pass" if table.passed[:, test].any() else "all_fail"
    return "agrees" if auc > 0.5 else "backwards" if auc < 0.5 else "neutral"
