# SPDX-License-Identifier: Apache-2.0
"""The pool of a prompt, against exact enumeration of its process, and the enumeration against known values.

The mean gradient of a group is `coefficient * grad p`, because the mean score of a positive rollout is grad p / p and
that of a negative one -grad p / (1 - p). REINFORCE with the true baseline has the coefficient 1.
"""

import itertools
import math
import random
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_kernel.adaptive import AdaOptions, ExitRule, Pool, PoolStatistics
from verl_kernel.adaptive.pool import kept_positives


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


GOLDEN = [
    # p, variant, draws, bias, pool mean, group mean, inverse p, silent; n = 4, M = 8, N = 4
    (0.02, "balance", 30.9, 0.004, 7.17, 4.98, 169, 0.52), (0.02, "pos", 25.5, 0.016, 5.88, 4.66, 103, 0.52),
    (0.1, "balance", 21.0, 0.032, 3.95, 2.60, 41, 0.03), (0.1, "pos", 13.6, 0.030, 2.80, 2.23, 28, 0.03),
    (0.3, "balance", 10.3, 0.028, 1.35, 1.19, 5.1, 0.0), (0.3, "pos", 8.5, 0.009, 1.23, 1.13, 5.0, 0.0),
    (0.5, "balance", 8.6, 0.0, 1.00, 1.00, 2.2, 0.0), (0.5, "pos", 8.0, 0.001, 0.97, 0.98, 2.3, 0.004),
    (0.8, "balance", 13.4, -0.038, 2.05, 1.56, 2.7, 0.001), (0.8, "pos", 8.0, 0.0, 1.35, 1.17, 1.9, 0.17),
    (0.95, "balance", 27.3, -0.016, 5.86, 3.81, 6.5, 0.19), (0.95, "pos", 8.0, 0.0, 1.68, 1.40, 2.0, 0.66),
]  # fmt: skip
SAMPLING = {"balance": "seq_balance", "pos": "seq_pos"}


@pytest.mark.parametrize("row", GOLDEN, ids=lambda row: f"{row[0]}-{row[1]}")
def test_known_values(row):
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
def test_every_final_pool_has_its_exact_probability(p, variant):
    rule = AdaOptions(sampling=SAMPLING[variant], round_size=4, max_draws=16).exit_rule(4)
    assert walk(rule, p) == pytest.approx(finals(p, 4, 4, 4, rule.k_pos, rule.k_neg), abs=1e-12)


def filled(hits: int, misses: int, rule: ExitRule) -> Pool:
    pool = Pool(rule, draws=hits + misses)
    pool.add([(1.0,)] * hits + [(0.0,)] * misses, [True] * hits + [False] * misses)
    return pool


@given(st.integers(0, 9), st.integers(0, 9))
def test_the_exit_rule_of_both_variants(hits, misses):
    balance = AdaOptions(sampling="seq_balance", max_draws=64).exit_rule(4)
    pos = AdaOptions(sampling="seq_pos", max_draws=64).exit_rule(4)
    enough = hits + misses >= 4
    assert filled(hits, misses, balance).met() == (hits >= 2 and misses >= 2 and enough)
    assert filled(hits, misses, pos).met() == (hits >= 1 and enough)


def test_the_counts_that_end_the_rounds_are_options():
    balanced = AdaOptions(sampling="seq_balance", k_pos=8, k_neg=3, max_draws=128)
    assert balanced.exit_rule(16) == ExitRule(8, 3, 16, 8, 128)
    assert AdaOptions(sampling="seq_pos", k_pos=16, max_draws=128).exit_rule(4) == ExitRule(16, 0, 4, 8, 128)
    odd = AdaOptions(sampling="seq_balance").exit_rule(5)
    assert (odd.k_pos, odd.k_neg) == (2, 3)


@given(st.data())
def test_a_finished_pool_never_draws_again(data):
    rule = ExitRule(*(data.draw(st.integers(0, 6)) for _ in range(3)), data.draw(st.integers(1, 9)), 20)
    pool, ended = Pool(rule), False
    while count := pool.next_round():
        assert not ended
        assert count <= rule.round_size
        marks = data.draw(st.lists(st.booleans(), max_size=count))
        pool.add([(float(mark),) for mark in marks], marks)
        ended = pool.done()
        assert pool.draws <= rule.max_draws
    assert pool.done()
    assert pool.next_round() == 0
    assert pool.draws <= rule.max_draws


@given(st.integers(0, 12), st.integers(0, 12), st.integers(1, 9), st.integers(0, 99))
def test_kept_rollouts(hits, misses, n, seed):
    pool = filled(hits, misses, ExitRule(1, 1, n, 8, 64))
    kept = pool.select(n, random.Random(seed))
    assert len(kept) == len(set(kept)) == min(n, hits + misses)
    positives = sum(pool.positive[i] for i in kept)
    assert positives == kept_positives(hits, misses, n) == kept_of(hits, misses, n)
    if hits + misses >= n >= 2 and hits and misses:
        assert 0 < positives < n
    if hits >= n // 2 and misses >= n - n // 2:
        assert positives == n // 2


def test_the_choice_within_a_class_repeats_with_its_seed():
    pool = filled(6, 6, ExitRule(1, 1, 4, 8, 64))
    assert len({tuple(pool.select(4, random.Random(seed))) for seed in range(40)}) > 20
    assert pool.select(4, random.Random("0/3/7")) == pool.select(4, random.Random("0/3/7"))


def test_a_round_that_brings_nothing_ends_the_rounds():
    pool = Pool(ExitRule(1, 1, 4, 8, 64))
    assert pool.next_round() == 8
    pool.add([], [])
    assert pool.next_round() == 0
    assert pool.statistics().reason == "stalled"


def test_statistics_travel_as_plain_values():
    statistics = filled(1, 3, ExitRule(1, 0, 4, 8, 64)).statistics()
    assert statistics == PoolStatistics(4, ((1.0,), (0.0,), (0.0,), (0.0,)), 1, "met")
    assert PoolStatistics.from_tag(statistics.tag()) == statistics
    assert all(isinstance(value, int | float | str | list) for value in statistics.tag().values())
    assert statistics.share == 0.25
    assert statistics.weight(10) == 4
    assert statistics.weight(3) == 3
    assert PoolStatistics(8, (), 0, "stalled").weight(7) == 7
