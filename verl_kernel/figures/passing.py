# SPDX-License-Identifier: Apache-2.0
"""pass@k: the probability that at least one of k samples of a task passes (Chen et al., arXiv 2107.03374, eq. 1)."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

import numpy as np

from verl_kernel.figures.asked import Asked
from verl_kernel.figures.attempts import Attempt
from verl_kernel.figures.bootstrap import Bootstrap
from verl_kernel.figures.figures import CRITERIA, Ratio, ratio
from verl_kernel.figures.record import PassAtK, View
from verl_kernel.figures.views import Samples, best_of_history, last_turn


def pass_at_k(samples: int, passed: int, k: int) -> float:
    """Return the unbiased estimate from n samples of which c passed: 1 - C(n - c, k) / C(n, k).

    Raises:
        ValueError: k is not between 1 and n, or c not between 0 and n.
    """
    if not 1 <= k <= samples or not 0 <= passed <= samples:
        raise ValueError(f"pass@{k} of {samples} samples with {passed} passed is not defined")
    return 1.0 - comb(samples - passed, k) / comb(samples, k)


def passes(samples: Samples, asked: Asked, bootstrap: Bootstrap) -> tuple[PassAtK, ...]:
    """Return pass@k for k = 1, 2, 4, ... and n, by every criterion, of last answers and of best ones."""
    views: tuple[tuple[View, Sequence[Attempt]], ...] = (
        ("last turn", last_turn(samples, asked.turns)),
        ("best of history", best_of_history(samples, asked.turns)),
    )
    tasks = [one.task for one in asked.tasks]
    return tuple(
        _passing(ratio(criterion, answers, tasks), k, criterion, view, bootstrap)
        for view, answers in views
        for criterion in CRITERIA
        for k in _ks(asked.samples)
    )


def _ks(samples: int) -> list[int]:
    powers = [2**exponent for exponent in range(samples.bit_length())]
    return [k for k in dict.fromkeys([*powers, samples]) if 0 < k <= samples]


def _passing(found: Ratio, k: int, criterion: str, view: View, bootstrap: Bootstrap) -> PassAtK:
    known = found.counts >= k
    pairs = zip(found.counts, found.sums, known, strict=True)
    values = np.array([pass_at_k(int(count), round(passed), k) if enough else 0.0 for count, passed, enough in pairs])
    (estimate,) = bootstrap.estimates({criterion: Ratio(values, known.astype(np.float64))}).values()
    return PassAtK(k=k, criterion=criterion, view=view, estimate=estimate, tasks=int(known.sum()))
