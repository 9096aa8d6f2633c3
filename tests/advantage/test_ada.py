# SPDX-License-Identifier: Apache-2.0
"""The estimators of Reinforce-Ada against naive sums."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.advantage.batches import Batch, assert_close, batches, build, estimated
from tests.advantage.oracle import naive_advantages, returns_to_go
from verl_kernel.adaptive import AdaOptions, ExitRule, Pool, PoolStatistics, run_state
from verl_kernel.errors import ConfigError


@pytest.fixture(autouse=True)
def own_state():
    yield run_state.begin(AdaOptions(sampling="seq_balance"))
    run_state.begin(AdaOptions())


def single_turns(rewards: list[float], uids: list[str]) -> Batch:
    return build([[reward] for reward in rewards], [[(0, 2)] for _ in rewards], uids)


def fresh_state() -> run_state.RunState:
    """The state of one example, without what an earlier one left."""
    return run_state.begin(AdaOptions(sampling="seq_balance"))


@given(batches(), st.floats(0.5, 1.0), st.sampled_from([1e-6, 0.01, 1.0]), st.data())
def test_ada_est_divides_by_the_root_of_the_pass_rate(batch, gamma, epsilon, data):
    """Uids a and b may have rates that the sampler left; another prompt's is the share of positive returns."""
    own = fresh_state()
    own.pass_rates = data.draw(st.dictionaries(st.sampled_from(["a", "b", "none"]), st.floats(0, 1)))
    root = data.draw(st.sampled_from(["pass_rate", "mean_return"]))
    returns = [returns_to_go(rewards, gamma) for rewards in batch.turn_rewards]
    expected = naive_advantages(batch.turn_rewards, batch.uids, gamma=gamma)
    for i, row in enumerate(returns):
        for t in range(len(row)):
            group = [g[t] for g, uid in zip(returns, batch.uids, strict=True) if uid == batch.uids[i] and len(g) > t]
            share = sum(value > 0 for value in group) / len(group)
            share = own.pass_rates.get(batch.uids[i], share)
            share = max(sum(group) / len(group), 0) if root == "mean_return" else share
            expected[i][t] /= math.sqrt(share + epsilon)
    assert_close(estimated("ada_est", batch, ada={"epsilon": epsilon, "root": root}, gamma=gamma), expected)


def test_ada_est_by_hand():
    batch = single_turns([1.0, 0.0, 0.0, 0.0, -1.0, -3.0], ["a"] * 4 + ["b"] * 2)
    # Group a: one of four passed. Group b: none of two. Epsilon is 0.01.
    root = math.sqrt(0.26)
    expected = [0.75 / root, -0.25 / root, -0.25 / root, -0.25 / root, 10.0, -10.0]
    assert_close(estimated("ada_est", batch), [[value] for value in expected])


@pytest.mark.parametrize(("ada", "factor"), [
    ({}, 1.0),
    ({"weight": "inverse_p", "weight_cap": 10.0}, 16 / 3),
    ({"weight": "inverse_p", "weight_cap": 4.0}, 4.0),
])  # fmt: skip
def test_ada_seq_takes_the_mean_of_the_pool(own_state, ada, factor):
    pool = Pool(ExitRule(2, 2, 4, 8, 32), 16)
    pool.add([(1.0,)] * 3 + [(0.0,)] * 13, [True] * 3 + [False] * 13)
    own_state.pools["a"] = pool.statistics()
    rewards = [pool.rewards[i][0] for i in pool.select(4, random.Random(0))]
    found = estimated("ada_seq", single_turns(rewards, ["a"] * 4), ada=ada)
    assert_close(found, [[factor * (reward - 3 / 16)] for reward in rewards])


@given(batches(max_turns=3), st.data())
def test_ada_seq_per_turn(batch, data):
    """Uids a and b may have pools of their own rows and further draws; others are compared with their own rows."""
    further = st.lists(st.lists(st.sampled_from([0.0, 0.5, 2.0]), min_size=1, max_size=4).map(tuple), max_size=4)
    own, expected = fresh_state(), naive_advantages(batch.turn_rewards, batch.uids, gamma=0.5)
    for uid in data.draw(st.sets(st.sampled_from(["a", "b"]))) & set(batch.uids):
        kept = [tuple(row) for row, name in zip(batch.turn_rewards, batch.uids, strict=True) if name == uid]
        own.pools[uid] = PoolStatistics(0, (*kept, *data.draw(further)), 0, "limit")
    for i, uid in enumerate(batch.uids):
        if uid in own.pools:
            pool = [returns_to_go(row, 0.5) for row in own.pools[uid].rewards]
            for t, value in enumerate(returns_to_go(batch.turn_rewards[i], 0.5)):
                reached = [row[t] for row in pool if len(row) > t]
                expected[i][t] = value - sum(reached) / len(reached)
    assert_close(estimated("ada_seq", batch, gamma=0.5), expected)


@pytest.mark.parametrize("name", ["ada_est", "ada_seq"])
def test_a_bad_option_is_refused(name):
    with pytest.raises(ConfigError, match=r"algorithm\.ada\.weigth is not an option"):
        estimated(name, single_turns([1.0], ["a"]), ada={"weigth": "none"})
