# SPDX-License-Identifier: Apache-2.0
"""What holds for every estimator that the plugin registers, and for their options."""

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from tests.advantage.batches import EMPTY, build, estimate, estimated, masked, per_turn, rejected_batches
from tests.advantage.oracle import naive_trloo
from verl_kernel.advantage import ESTIMATORS, OPTIONS
from verl_kernel.advantage.baselines import trloo
from verl_kernel.advantage.options import TrlooOptions, check_algorithm
from verl_kernel.advantage.topr import ToprOptions
from verl_kernel.advantage.turns import ZERO_REWARD
from verl_kernel.errors import ConfigError

every = pytest.mark.parametrize("name", ESTIMATORS)


@every
@settings(max_examples=10)
@given(drawn=rejected_batches())
def test_a_turns_tokens_share_one_finite_value(name, drawn):
    batch, kept = drawn
    before = batch.rewards.clone(), batch.mask.clone()
    for baseline in ("turn", "padded"):
        advantages = estimate(name, batch, baseline=baseline)
        assert advantages.isfinite().all()
        assert advantages.dtype is torch.float32
        assert (advantages[batch.mask == 0] == 0).all()
        assert len(per_turn(batch, advantages)) == len(kept)
    assert torch.equal(batch.rewards, before[0])
    assert torch.equal(batch.mask, before[1])


@every
def test_padding_rows_change_nothing_and_stay_zero(name):
    batch = build([[1.0, 0.5], [0.0, 2.0], [0.0]], [[(0, 2), (3, 5)], [(0, 1), (2, 6)], [(0, 3)]], ["a"] * 3)
    pad = torch.zeros(2, batch.rewards.shape[1])
    index = np.array([*batch.uids, "pad0", "pad1"], dtype=object)
    padded = ESTIMATORS[name](torch.cat([batch.rewards, pad]), torch.cat([batch.mask, pad.long()]), index=index)[0]
    assert torch.equal(padded[:3], estimate(name, batch))
    assert (padded[3:] == 0).all()


@every
def test_no_rows_one_row_and_rejected_rows_are_borne(name):
    assert estimate(name, EMPTY).shape == (0, 4)
    # A right answer needs no other one to compare with where nothing is compared.
    alone = estimate(name, build([[0.5]], [[(0, 3)]], ["a"]))
    assert bool((alone == 0).all()) == (name not in ("rsft", "topr_signed"))
    rejected = build([[1.0], [0.0], [0.0]], [[(0, 3)]] * 3, ["a"] * 3)
    rejected.mask[:] = 0
    assert (estimate(name, rejected) == 0).all()


@every
def test_kl_in_reward_is_refused_with_its_remedy(name):
    with pytest.raises(ConfigError, match=r"actor\.use_kl_loss"):
        ESTIMATORS[name](torch.zeros(1, 2), torch.ones(1, 2), index=np.array(["a"]), config={"use_kl_in_reward": True})


@given(
    drawn=rejected_batches(),
    switches=st.sampled_from(
        [{}, {"gamma": 0.0}, {"shaping": "difference"}, {"baseline": "padded", "count_rejected": False}]
    )
    | st.just({"singleton": "raw", "mask_void_turn": True}),
)
def test_rsft_is_1_for_the_turns_that_earned_something(drawn, switches):
    batch, kept = drawn
    right = [[float(reward > ZERO_REWARD) for reward in row] for row in batch.turn_rewards]
    assert estimated("rsft", batch, **switches) == masked(right, kept)


def test_a_recorded_call_can_be_recomputed(tmp_path):
    batch = build([[1.0, 0.5], [0.0, 2.0]], [[(0, 2), (3, 5)], [(0, 1), (2, 6)]], ["a", "a"])
    config = {"trloo": {"record_dir": str(tmp_path / "calls")}}
    for _ in range(2):
        trloo(batch.rewards, batch.mask, index=batch.index, config=config)
    first, second = (np.load(path) for path in sorted((tmp_path / "calls").iterdir()))
    assert all(np.array_equal(first[name], second[name]) for name in ("rewards", "mask", "uid", "advantages"))
    assert np.array_equal(first["rewards"], batch.rewards.numpy())
    expected = naive_trloo(batch.turn_rewards, list(first["uid"]))
    for row, spans, values in zip(first["advantages"], batch.spans, expected, strict=True):
        assert [row[start] for start, _ in spans] == values


@pytest.mark.parametrize(("node", "key", "value"), [
    ("trloo", "gamma", 1.5), ("trloo", "gamma", "high"), ("trloo", "gamma", True), ("trloo", "gamma", -0.1),
    ("trloo", "gamma", float("nan")), ("trloo", "singleton", "keep"), ("trloo", "count_rejected", "no"),
    ("trloo", "count_rejected", 0), ("trloo", "shaping", "slope"), ("trloo", "baseline", "prompt"),
    ("trloo", "negative_weight", -0.1),
    ("trloo", "sigma", 1), ("rec", "asymre_shift", float("inf")), ("rec", "asymre_shift", "low"),
    ("rec", "opmd_baseline", "median"), ("rec", "opmd_tau", 0.0), ("rec", "red_drop_seed", -1),
    ("rec", "red_drop_seed", 0.5), ("rec", "shift", 0.1), ("topr", "positive_share", 0.0),
    ("topr", "positive_share", 1.0), ("topr", "c", float("nan")), ("topr", "threshold", None),
    ("topr", "reward", "rank"), ("topr", "share", 0.1),
])  # fmt: skip
def test_bad_options_are_refused_by_name(node, key, value):
    (options,) = (kind for kind in (TrlooOptions, *OPTIONS) if f"algorithm.{node}" == kind.NODE)
    with pytest.raises(ConfigError, match=rf"algorithm\.{node}\.{key} ") as error:
        options.from_node(OmegaConf.create({key: value}))
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)


@pytest.mark.parametrize(("algorithm", "sentence"), [
    (
        {"gamma": 1.0, "trloo": {"shaping": "difference_terminal"}},
        r"algorithm\.trloo\.gamma below 1, or algorithm\.trloo\.shaping",
    ),
    (
        {"adv_estimator": "asymre_shift", "trloo": {"normaliser": "deviation"}},
        r"algorithm\.trloo\.normaliser is deviation.*asymre_shift.*none",
    ),
    (
        {"adv_estimator": "rsft", "trloo": {"negative_weight": 0.25}},
        r"algorithm\.trloo\.negative_weight is 0.25.*rsft.*1\.0, or choose trloo",
    ),
    ({"trloo": "raw"}, r"algorithm\.trloo is 'raw'"),
])  # fmt: skip
def test_a_contradiction_is_refused_with_its_remedy(algorithm, sentence):
    with pytest.raises(ConfigError, match=sentence):
        check_algorithm(OmegaConf.create(algorithm))


def test_raw_rewards_have_no_share_to_solve_for():
    with pytest.raises(ConfigError, match=r"algorithm\.topr\.c to a number, or algorithm\.topr\.reward to sign"):
        ToprOptions(reward="raw", c=None)


def test_the_discount_is_verls_where_the_node_leaves_it_open():
    for node, gamma in (({}, 0.5), ({"gamma": None}, 0.5), ({"gamma": 0.0}, 0.0), ({"gamma": 0.9}, 0.9)):
        assert check_algorithm({"gamma": 0.5, "trloo": node}).gamma == gamma
    assert check_algorithm({"gamma": 0.9, "trloo": {"shaping": "difference_terminal"}}).gamma == 0.9
    assert check_algorithm(None) == TrlooOptions()
