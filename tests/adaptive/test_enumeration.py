# SPDX-License-Identifier: Apache-2.0
"""The implementation against exact enumeration of the pool process, and the enumeration against known values."""

from __future__ import annotations

import itertools
import math
import random
import statistics

import pytest

from tests.adaptive.enumeration import coefficient, expected, finals
from verl_kernel.adaptive import AdaOptions, ExitRule, Pool

GOLDEN = [
    # p, variant, draws, bias, pool mean, group mean, inverse p, silent; n = 4, M = 8, N = 4
    (0.02, "balance", 30.9, 0.004, 7.17, 4.98, 169, 0.52),
    (0.02, "pos", 25.5, 0.016, 5.88, 4.66, 103, 0.52),
    (0.1, "balance", 21.0, 0.032, 3.95, 2.60, 41, 0.03),
    (0.1, "pos", 13.6, 0.030, 2.80, 2.23, 28, 0.03),
    (0.3, "balance", 10.3, 0.028, 1.35, 1.19, 5.1, 0.0),
    (0.3, "pos", 8.5, 0.009, 1.23, 1.13, 5.0, 0.0),
    (0.5, "balance", 8.6, 0.0, 1.00, 1.00, 2.2, 0.0),
    (0.5, "pos", 8.0, 0.001, 0.97, 0.98, 2.3, 0.004),
    (0.8, "balance", 13.4, -0.038, 2.05, 1.56, 2.7, 0.001),
    (0.8, "pos", 8.0, 0.0, 1.35, 1.17, 1.9, 0.17),
    (0.95, "balance", 27.3, -0.016, 5.86, 3.81, 6.5, 0.19),
    (0.95, "pos", 8.0, 0.0, 1.68, 1.40, 2.0, 0.66),
]
SAMPLING = {"balance": "seq_balance", "pos": "seq_pos"}


@pytest.mark.parametrize("row", GOLDEN, ids=lambda row: f"{row[0]}-{row[1]}")
def test_known_values(row: tuple) -> None:
    p, variant, draws, bias, pool_mean, group_mean, inverse_p, silent = row
    exact = expected(p, variant)
    assert exact.draws == pytest.approx(draws, abs=0.06)
    assert exact.bias == pytest.approx(bias, abs=6e-4)
    assert exact.pool_mean == pytest.approx(pool_mean, abs=6e-3)
    assert exact.group_mean == pytest.approx(group_mean, abs=6e-3)
    assert exact.inverse_p == pytest.approx(inverse_p, rel=0.02)
    assert exact.silent == pytest.approx(silent, abs=6e-3)


def walk(rule: ExitRule, p: float) -> dict[tuple[int, int], float]:
    """Final states of the implementation's own pools, every round's outcomes enumerated."""
    open_pools, ended = [(0, 0, 0, 1.0)], dict[tuple[int, int], float]()
    while open_pools:
        hits, misses, draws, mass = open_pools.pop()
        pool = Pool(rule, draws)
        pool.add([(0.0,)] * (hits + misses), [True] * hits + [False] * misses)
        pool.stalled = False
        count = pool.next_round()
        if count == 0:
            ended[hits, misses] = ended.get((hits, misses), 0.0) + mass
        for new in range(count + 1) if count else ():
            chance = mass * math.comb(count, new) * p**new * (1 - p) ** (count - new)
            open_pools.append((hits + new, misses + count - new, pool.draws, chance))
    return ended


@pytest.mark.parametrize(("p", "variant"), list(itertools.product([0.1, 0.5, 0.9], SAMPLING)))
def test_every_final_pool_has_its_exact_probability(p: float, variant: str) -> None:
    rule = AdaOptions(sampling=SAMPLING[variant], round_size=4, max_draws=16).exit_rule(4)
    oracle = finals(p, 4, 4, 4, rule.k_pos, rule.k_neg)
    assert walk(rule, p) == pytest.approx(oracle, abs=1e-12)


def simulate(p: float, rule: ExitRule, rng: random.Random) -> tuple[float, float, float]:
    """Draws, coefficient with the pool's mean, and whether no gradient is left, of one group."""
    pool = Pool(rule)
    while count := pool.next_round():
        marks = [rng.random() < p for _ in range(count)]
        pool.add([(float(mark),) for mark in marks], marks)
    kept = pool.select(4, rng)
    found = pool.statistics()
    positives = sum(pool.positive[i] for i in kept)
    return found.draws, coefficient(positives, len(kept), found.share, p), float(len(set(found.rewards)) == 1)


@pytest.mark.parametrize(("p", "variant"), [(0.1, "balance"), (0.1, "pos"), (0.8, "balance"), (0.8, "pos")])
def test_simulated_groups_agree_with_the_enumeration(p: float, variant: str) -> None:
    rule, rng = AdaOptions(sampling=SAMPLING[variant]).exit_rule(4), random.Random(7)
    columns = list(zip(*(simulate(p, rule, rng) for _ in range(1500)), strict=True))
    exact = expected(p, variant)
    for values, wanted in zip(columns, (exact.draws, exact.pool_mean, exact.silent), strict=True):
        error = statistics.stdev(values) / math.sqrt(len(values)) if len(set(values)) > 1 else 1e-4
        assert statistics.fmean(values) == pytest.approx(wanted, abs=4 * error)


def test_a_first_positive_takes_1_over_p_draws() -> None:
    for p in (0.1, 0.5):
        chances = finals(p, 1, 1, 500, 1, 0)
        assert sum(sum(state) * mass for state, mass in chances.items()) == pytest.approx(1 / p, rel=1e-9)
        rule, rng = ExitRule(1, 0, 1, 1, 10_000), random.Random(3)
        draws = [simulate(p, rule, rng)[0] for _ in range(800)]
        assert statistics.fmean(draws) == pytest.approx(1 / p, abs=4 * statistics.stdev(draws) / math.sqrt(800))
