# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf
from verl.trainer.ppo.core_algos import get_adv_estimator_fn

from tests.advantage.batches import Batch, batches, build
from tests.advantage.estimates import assert_close, estimate, per_turn
from tests.advantage.oracle import naive_trloo, naive_turn_grpo
from verl_kernel.advantage.baselines import trloo, turn_grpo
from verl_kernel.advantage.options import TrlooOptions, check_algorithm
from verl_kernel.errors import ConfigError

ORACLES = {"trloo": naive_trloo, "turn_grpo": naive_turn_grpo}
GAMMAS = st.sampled_from([0.0, 0.5, 1.0])


@pytest.mark.parametrize("name", sorted(ORACLES))
@given(batch=batches(), gamma=GAMMAS, singleton=st.sampled_from(["zero", "raw"]))
def test_every_turn_matches_the_naive_sums(name: str, batch: Batch, gamma: float, singleton: str) -> None:
    advantages = estimate(name, batch, gamma=gamma, singleton=singleton)
    assert_close(per_turn(batch, advantages), ORACLES[name](batch.turn_rewards, batch.uids, gamma, singleton))
    assert advantages.dtype is torch.float32
    assert advantages.isfinite().all()
    assert (advantages[batch.mask == 0] == 0).all()


@given(batch=batches(), gamma=GAMMAS)
def test_advantages_of_a_group_sum_to_zero(batch: Batch, gamma: float) -> None:
    values = per_turn(batch, estimate("trloo", batch, gamma=gamma))
    for uid in set(batch.uids):
        for t in range(4):
            group = [row[t] for row, own in zip(values, batch.uids, strict=True) if own == uid and len(row) > t]
            assert sum(group) == pytest.approx(0, abs=1e-4)


@given(batches())
def test_leave_one_out_is_a_scaled_group_mean(batch: Batch) -> None:
    loo, mean = per_turn(batch, estimate("trloo", batch)), per_turn(batch, estimate("turn_grpo", batch))
    for i, uid in enumerate(batch.uids):
        for t in range(len(loo[i])):
            n = sum(own == uid and len(row) > t for own, row in zip(batch.uids, loo, strict=True))
            assert loo[i][t] == pytest.approx(mean[i][t] * n / max(n - 1, 1), rel=1e-4, abs=1e-5)


@given(batch=batches(), seed=st.integers(0, 99))
def test_order_of_rows_does_not_matter(batch: Batch, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(len(batch.uids))
    shuffled = trloo(batch.rewards[order], batch.mask[order], index=batch.index[order])[0]
    torch.testing.assert_close(shuffled, trloo(batch.rewards, batch.mask, index=batch.index)[0][order])


@given(batches(max_turns=1))
def test_one_turn_is_verls_rloo(batch: Batch) -> None:
    # verl's rloo leaves a group of one its raw score, its vectorised twin gives 0: our two singleton options.
    for singleton, name in (("raw", "rloo"), ("zero", "rloo_vectorized")):
        expected, _ = get_adv_estimator_fn(name)(batch.rewards.clone(), batch.mask, index=batch.index)
        torch.testing.assert_close(
            estimate("trloo", batch, singleton=singleton), expected.float(), atol=1e-5, rtol=1e-4
        )


@given(batches(min_turns=2))
def test_discounts_reach_from_this_turn_to_all_later_ones(batch: Batch) -> None:
    alone = [[value] for row in batch.turn_rewards for value in row[:1]]
    total = [[sum(row)] for row in batch.turn_rewards]
    for gamma, rewards in ((0.0, alone), (1.0, total)):
        first = [row[:1] for row in per_turn(batch, estimate("trloo", batch, gamma=gamma))]
        assert_close(first, naive_trloo(rewards, batch.uids))


@given(batch=batches(), seed=st.integers(0, 99))
def test_masked_turns_still_count_in_the_baseline(batch: Batch, seed: int) -> None:
    whole = estimate("trloo", batch)
    punched = batch.mask.clone()
    for i, row in enumerate(batch.spans):
        for start, stop in row:
            if np.random.default_rng([seed, i, start]).random() < 0.5:
                punched[i, start:stop] = 0
    assert torch.equal(trloo(batch.rewards, punched, index=batch.index)[0], whole * punched)


def test_padding_rows_change_nothing_and_stay_zero() -> None:
    batch = build([[1.0, 0.5], [0.0, 2.0]], [[(0, 2), (3, 5)], [(0, 1), (2, 6)]], ["a", "a"])
    pad = torch.zeros(3, batch.rewards.shape[1])
    padded = trloo(
        torch.cat([batch.rewards, pad]), torch.cat([batch.mask, pad.long()]), index=np.array(["a", "a", *["pad0"] * 3])
    )[0]
    assert torch.equal(padded[:2], estimate("trloo", batch))
    assert (padded[2:] == 0).all()


def test_inputs_are_left_alone() -> None:
    batch = build([[1.0, 0.0]], [[(0, 2), (2, 4)]], ["a"])
    before = batch.rewards.clone(), batch.mask.clone()
    estimate("trloo", batch)
    assert torch.equal(batch.rewards, before[0])
    assert torch.equal(batch.mask, before[1])


def test_discount_falls_back_to_the_algorithms_gamma() -> None:
    assert check_algorithm({"gamma": 0.5}).gamma == 0.5
    assert check_algorithm({"gamma": 0.5, "trloo": {"gamma": 0.9}}).gamma == 0.9
    assert check_algorithm(None) == TrlooOptions()


@pytest.mark.parametrize(
    ("node", "key"),
    [
        ({"gamma": 1.5}, "gamma"),
        ({"gamma": "high"}, "gamma"),
        ({"gamma": True}, "gamma"),
        ({"gamma": -0.1}, "gamma"),
        ({"gamma": float("nan")}, "gamma"),
        ({"singleton": "keep"}, "singleton"),
        ({"count_rejected": "no"}, "count_rejected"),
        ({"count_rejected": 0}, "count_rejected"),
        ({"shaping": "slope"}, "shaping"),
        ({"shaping": "difference_terminal"}, "shaping"),
        ({"baseline": "prompt"}, "baseline"),
        ({"sigma": 1}, "sigma"),
    ],
)
def test_bad_options_are_refused_by_name(node: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError, match=f"algorithm.trloo.{key} ") as error:
        check_algorithm(OmegaConf.create({"trloo": node}))
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)


def test_a_contradiction_names_both_ways_out() -> None:
    with pytest.raises(ConfigError, match=r"algorithm\.trloo\.gamma below 1, or algorithm\.trloo\.shaping"):
        check_algorithm({"gamma": 1.0, "trloo": {"shaping": "difference_terminal"}})
    assert check_algorithm({"gamma": 0.9, "trloo": {"shaping": "difference_terminal"}}).gamma == 0.9


def test_an_estimator_that_divides_by_nothing_refuses_to() -> None:
    with pytest.raises(ConfigError, match=r"algorithm\.trloo\.normaliser is deviation.*asymre_shift"):
        check_algorithm({"adv_estimator": "asymre_shift", "trloo": {"normaliser": "deviation"}})


@given(batches())
def test_whole_trajectories_are_verls_rloo(batch: Batch) -> None:
    expected, _ = get_adv_estimator_fn("rloo")(batch.rewards.clone(), batch.mask, index=batch.index)
    own = estimate("trloo", batch, singleton="raw", credit="trajectory", baseline="padded")
    torch.testing.assert_close(own, expected.float(), atol=1e-4, rtol=1e-3)


def test_a_node_that_holds_no_keys_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"algorithm\.trloo is 'raw'"):
        check_algorithm(OmegaConf.create({"trloo": "raw"}))


@pytest.mark.parametrize("estimator", [trloo, turn_grpo])
def test_kl_in_reward_is_refused_with_its_remedy(estimator: Any) -> None:
    with pytest.raises(ConfigError, match="actor.use_kl_loss"):
        estimator(torch.zeros(1, 2), torch.ones(1, 2), index=np.array(["a"]), config={"use_kl_in_reward": True})
