# SPDX-License-Identifier: Apache-2.0
"""The pool of a prompt: when its rounds end, and which rollouts are kept."""

import random

from hypothesis import given
from hypothesis import strategies as st

from tests.adaptive.test_enumeration import kept_of
from verl_kernel.adaptive import AdaOptions, ExitRule, Pool, PoolStatistics
from verl_kernel.adaptive.pool import kept_positives


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
    assert AdaOptions(sampling="seq_balance", k_pos=8, k_neg=3, max_draws=128).exit_rule(16) == ExitRule(
        8, 3, 16, 8, 128
    )
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
