# SPDX-License-Identifier: Apache-2.0
"""The pool process of one prompt, enumerated exactly: an oracle that knows nothing of the implementation.

The mean gradient of a group is `coefficient * grad p`, because the mean score of a positive rollout is grad p / p and
that of a negative one -grad p / (1 - p). REINFORCE with the true baseline has the coefficient 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Expected:
    draws: float
    bias: float
    """E[share of positives] - p."""
    pool_mean: float
    """Coefficient with the mean of the pool as baseline."""
    group_mean: float
    """Coefficient with the mean of the kept rollouts as baseline."""
    inverse_p: float
    """Coefficient with the pool's mean, times 1 / share of positives, not capped."""
    silent: float
    """Probability that no gradient is left."""


def coefficient(kept: int, n: int, baseline: float, p: float) -> float:
    return (kept * (1 - baseline) / p + (n - kept) * baseline / (1 - p)) / n


def finals(p: float, n: int, size: int, rounds: int, k_pos: int, k_neg: int) -> dict[tuple[int, int], float]:
    """Probability of each final (positives, negatives)."""
    active, done = {(0, 0): 1.0}, dict[tuple[int, int], float]()
    for number in range(rounds):
        following: dict[tuple[int, int], float] = {}
        for (hits, misses), mass in active.items():
            for new in range(size + 1):
                chance = mass * math.comb(size, new) * p**new * (1 - p) ** (size - new)
                state = hits + new, misses + size - new
                out = (state[0] >= k_pos and state[1] >= k_neg) or number == rounds - 1
                where = done if out else following
                where[state] = where.get(state, 0.0) + chance
        active = following
    return done


def kept_of(hits: int, misses: int, n: int) -> int:
    kept = min(n // 2, hits)
    from_misses = min(n - kept, misses)
    return kept + min(n - kept - from_misses, hits - kept)


def expected(p: float, variant: str, n: int = 4, size: int = 8, rounds: int = 4) -> Expected:
    k_pos, k_neg = (n // 2, n - n // 2) if variant == "balance" else (1, 0)
    sums = [0.0] * 6
    for (hits, misses), mass in finals(p, n, size, rounds, k_pos, k_neg).items():
        total, kept = hits + misses, kept_of(hits, misses, n)
        share = hits / total
        pooled = coefficient(kept, n, share, p)
        own = coefficient(kept, n, kept / n, p)
        flat = float(hits == 0 or misses == 0)
        for i, value in enumerate((total, share - p, pooled, own, pooled / share if share else 0.0, flat)):
            sums[i] += mass * value
    return Expected(*sums)
