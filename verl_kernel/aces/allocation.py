# SPDX-License-Identifier: Apache-2.0
"""Spread a number of runs over kinds of tests, and predict how many candidates these tests reject.

Tests of one kind differ only in their random draws. A candidate could memorise a test with fixed numbers, so ACES
chooses a kind, and the numbers are drawn freshly for every run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from verl_kernel.aces.table import Table
from verl_kernel.errors import DataError


def allocate(weights: ArrayLike, kinds: Sequence[str], total: int) -> dict[str, int]:
    """Spread `total` runs over kinds: one to each, the rest by their tests' weights (largest remainders).

    Args:
        weights: (m,), all at least 0.
        kinds: (m,), the kind of each test.
        total: runs, at least one for each kind.

    Raises:
        DataError: there are fewer runs than kinds.
    """
    names = list(dict.fromkeys(kinds))
    if total < len(names):
        raise DataError(f"{total} runs are too few for the kinds {', '.join(names)}: give at least {len(names)}")
    mass = np.array(
        [sum(w for w, kind in zip(np.asarray(weights), kinds, strict=True) if kind == name) for name in names]
    )
    quotas = (total - len(names)) * (mass / mass.sum() if mass.sum() > 0 else np.full(len(names), 1 / len(names)))
    # A quota that should be a whole number may miss it by rounding.
    counts = np.floor(quotas + 1e-9).astype(int)
    for at in np.argsort(counts - quotas, kind="stable")[: total - len(names) - counts.sum()]:
        counts[at] += 1
    return {name: int(count) + 1 for name, count in zip(names, counts, strict=True)}


def expected_rejections(
    matrix: ArrayLike, kinds: Sequence[str], counts: Mapping[str, int], mask: ArrayLike | None = None
) -> float:
    """Return how many candidates fail at least one of `counts` fresh tests of each kind, on average.

    Args:
        matrix: (n, m), as in `weights`; each candidate's pass rates by kind come from it.
        kinds: (m,), the kind of each test.
        counts: tests of each kind.
        mask: (n, m), as in `weights`; a kind on which a candidate was never run counts as passed.
    """
    table, label = Table.read(matrix, mask), np.asarray(kinds)
    passes = np.ones(table.passed.shape[0])
    for kind, count in counts.items():
        of_kind = label == kind
        ran = table.ran[:, of_kind].sum(1)
        rate = np.where(ran > 0, table.passed[:, of_kind].sum(1) / np.maximum(ran, 1), 1.0)
        passes *= rate**count
    return float((1 - passes).sum())
