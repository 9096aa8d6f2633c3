# SPDX-License-Identifier: Apache-2.0
"""The facts that ACES finds about each test, as plain data."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from verl_kernel.aces.table import Groups, Table
from verl_kernel.aces.weighting import discrimination, weights


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
    table, found = Table.read(matrix, mask), weights(matrix, method, mask, prior)
    groups = Groups.find(table)
    facts = discrimination(table.columns(groups.first), np.ones(groups.first.size))
    tests = []
    for test, group in enumerate(groups.number):
        first, auc = int(groups.first[group]), float(facts.auc[group])
        tests.append({
            "pass_rate": float(facts.pass_rate[group]), "auc": auc, "weight": float(found.values[test]),
            "kind": _kind(table, test, auc), "same_as": None if first == test else first,
        })  # fmt: skip
    candidates, count = table.passed.shape
    kept = np.bincount(groups.number, found.values)
    return {
        "candidates": candidates, "tests": count, "distinct_tests": int(groups.first.size),
        "effective_tests": float(1 / np.square(kept).sum()), "degenerate": found.degenerate, "columns": tests,
    }  # fmt: skip


def _kind(table: Table, test: int, auc: float) -> str:
    if not table.is_informative[test]:
        return "all_pass" if table.passed[:, test].any() else "all_fail"
    return "agrees" if auc > 0.5 else "backwards" if auc < 0.5 else "neutral"
