# SPDX-License-Identifier: Apache-2.0
"""The estimators of Reinforce-Ada against naive sums."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from tests.advantage.batches import Batch, batches, build
from tests.advantage.estimates import assert_close, per_turn
from tests.advantage.oracle import naive_turn_grpo, returns_to_go
from verl_kernel.adaptive import AdaOptions, ExitRule, Pool, PoolStatistics, run_state
from verl_kernel.advantage import ESTIMATORS
from verl_kernel.errors import ConfigError


@pytest.fixture(autouse=True)
def own_state() -> Iterator[run_state.RunState]:
    yield run_state.begin(AdaOptions(sampling="seq_balance"))
    run_state._states.clear()


def estimate(name: str, batch: Batch, ada: dict[str, Any] | None = None, **trloo: Any) -> list[list[float]]:
    config = OmegaConf.create({"gamma": 1.0, "use_kl_in_reward": False, "trloo": trloo, "ada": ada or {}})
    advantages, returns = ESTIMATORS[name](batch.rewards, batch.mask, index=batch.index, config=config)
    assert torch.equal(advantages, returns)
    return per_turn(batch, advantages)


def single_turns(rewards: list[float], uids: list[str]) -> Batch:
    return build([[reward] for reward in rewards], [[(0, 2)] for _ in rewards], uids)


@given(batches(), st.floats(0.5, 1.0), st.sampled_from([1e-6, 0.01, 1.0]), st.data())
def test_ada_est_divides_by_the_root_of_the_pass_rate(
    batch: Batch, gamma: float, epsilon: float, data: st.DataObject
) -> None:
    """Uids a and b may have rates that the sampler left; another prompt's is the share of positive returns."""
    own = run_state.current()
    assert own is not None
    own.pass_rates = data.draw(st.dictionaries(st.sampled_from(["a", "b", "none"]), st.floats(0, 1)))
    root = data.draw(st.sampled_from(["pass_rate", "mean_return"]))
    returns = [returns_to_go(rewards, gamma) for rewards in batch.turn_rewards]
    expected = naive_turn_grpo(batch.turn_rewards, batch.uids, gamma)
    for i, row in enumerate(returns):
        for t in range(len(row)):
            group = [g[t] for g, uid in zip(returns, batch.uids, strict=True) if uid == batch.uids[i] and len(g) > t]
            share = sum(value > 0 for value in group) / len(group)
            share = own.pass_rates.get(batch.uids[i], share)
            share = max(sum(group) / len(group), 0) if root == "mean_return" else share
            expected[i][t] /= math.sqrt(share + epsilon)
    assert_close(estimate("ada_est", batch, {"epsilon": epsilon, "root": root}, gamma=gamma), expected)


@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=2, max_size=9), st.booleans())
def test_with_rewards_of_0_and_1_ada_est_is_the_papers(rewards: list[float], is_known: bool) -> None:
    own, mean = run_state.current(), sum(rewards) / len(rewards)
    assert own is not None
    own.pass_rates = {"a": mean} if is_known else {}
    batch = single_turns(rewards, ["a"] * len(rewards))
    assert_close(estimate("ada_est", batch), [[(r - mean) / math.sqrt(mean + 0.01)] for r in rewards])


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.5]), min_size=2, max_size=9), st.sampled_from([0.25, 2.0, 8.0]))
def test_a_prompts_weight_ignores_the_scale_of_rewards(rewards: list[float], scale: float) -> None:
    uids = ["a"] * len(rewards)
    plain = estimate("ada_est", single_turns(rewards, uids))
    scaled = estimate("ada_est", single_turns([scale * reward for reward in rewards], uids))
    assert_close(scaled, [[scale * value] for [value] in plain])


def test_ada_est_by_hand() -> None:
    batch = single_turns([1.0, 0.0, 0.0, 0.0, -1.0, -3.0], ["a"] * 4 + ["b"] * 2)
    # Group a: one of four passed. Group b: none of two.
    root = math.sqrt(0.26)
    expected = [0.75 / root, -0.25 / root, -0.25 / root, -0.25 / root, 10.0, -10.0]
    assert_close(estimate("ada_est", batch, {"epsilon": 0.01}), [[value] for value in expected])


def balanced(hits: int, misses: int, n: int = 4) -> tuple[Batch, PoolStatistics]:
    """The kept rows of a pool with rewards 1 and 0."""
    pool = Pool(ExitRule(2, 2, n, 8, 32), hits + misses)
    pool.add([(1.0,)] * hits + [(0.0,)] * misses, [True] * hits + [False] * misses)
    rewards = [pool.rewards[i][0] for i in pool.select(n, random.Random(0))]
    return single_turns(rewards, ["a"] * n), pool.statistics()


def test_ada_seq_takes_the_mean_of_the_pool(own_state: run_state.RunState) -> None:
    batch, own_state.pools["a"] = balanced(3, 13)
    found = estimate("ada_seq", batch)
    p = 3 / 16
    assert_close(found, [[reward - p] for [reward] in batch.turn_rewards])
    # By design they do not sum up to 0.
    assert sum(value for [value] in found) == pytest.approx(4 / 2 * (1 - 2 * p), abs=1e-6)


@pytest.mark.parametrize(("cap", "factor"), [(10.0, 16 / 3), (4.0, 4.0)])
def test_ada_seq_weighs_by_the_inverse_share_of_positives(
    own_state: run_state.RunState, cap: float, factor: float
) -> None:
    batch, own_state.pools["a"] = balanced(3, 13)
    found = estimate("ada_seq", batch, {"weight": "inverse_p", "weight_cap": cap})
    assert_close(found, [[factor * (reward - 3 / 16)] for [reward] in batch.turn_rewards])


@given(batches(max_turns=3), st.floats(0.5, 1.0))
def test_without_a_pool_a_prompt_is_compared_with_its_own_rows(batch: Batch, gamma: float) -> None:
    assert_close(estimate("ada_seq", batch, gamma=gamma), naive_turn_grpo(batch.turn_rewards, batch.uids, gamma))


@given(batches(max_turns=3), st.data())
def test_ada_seq_per_turn(batch: Batch, data: st.DataObject) -> None:
    """Uids a and b have pools of their own rows and further draws; the padding rows have none."""
    further = st.lists(st.lists(st.sampled_from([0.0, 0.5, 2.0]), min_size=1, max_size=4).map(tuple), max_size=4)
    own, expected = run_state.current(), naive_turn_grpo(batch.turn_rewards, batch.uids, 0.5)
    assert own is not None
    own.pools = {}
    for uid in {"a", "b"} & set(batch.uids):
        kept = [tuple(row) for row, name in zip(batch.turn_rewards, batch.uids, strict=True) if name == uid]
        own.pools[uid] = PoolStatistics(0, (*kept, *data.draw(further)), 0, "limit")
    for i, uid in enumerate(batch.uids):
        if uid in own.pools:
            pool = [returns_to_go(row, 0.5) for row in own.pools[uid].rewards]
            for t, value in enumerate(returns_to_go(batch.turn_rewards[i], 0.5)):
                reached = [row[t] for row in pool if len(row) > t]
                expected[i][t] = value - sum(reached) / len(reached)
    assert_close(estimate("ada_seq", batch, gamma=0.5), expected)


def test_one_round_without_exit_is_grpo_without_deviation(own_state: run_state.RunState) -> None:
    from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage

    rng = random.Random(1)
    uids = [uid for uid in "abc" for _ in range(4)]
    rewards = [rng.choice([0.0, 1.0, 2.5]) for _ in uids]
    for uid in "abc":
        pool = Pool(ExitRule(9, 9, 4, 4, 4), 4)
        own = [(reward,) for reward, name in zip(rewards, uids, strict=True) if name == uid]
        pool.add(own, [reward > 0 for (reward,) in own])
        assert pool.done()
        assert not pool.met()
        assert pool.select(4, rng) == [0, 1, 2, 3]
        own_state.pools[uid] = pool.statistics()
    batch = single_turns(rewards, uids)
    theirs, _ = compute_grpo_outcome_advantage(
        batch.rewards, batch.mask.float(), index=batch.index, norm_adv_by_std_in_grpo=False
    )
    assert_close(estimate("ada_seq", batch), per_turn(batch, theirs))


@pytest.mark.parametrize("name", ["ada_est", "ada_seq"])
def test_a_bad_option_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"algorithm\.ada\.weigth is not an option"):
        estimate(name, single_turns([1.0], ["a"]), {"weigth": "none"})
