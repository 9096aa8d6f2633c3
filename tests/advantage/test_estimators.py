# SPDX-License-Identifier: Apache-2.0
"""What holds for every estimator that the plugin registers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from omegaconf import OmegaConf

from tests.advantage.batches import Batch, build
from tests.advantage.estimates import estimate, per_turn
from tests.advantage.test_switches import CHOICES, rejected_batches
from verl_kernel.advantage import ESTIMATORS, OPTIONS
from verl_kernel.errors import ConfigError

every = pytest.mark.parametrize("name", ESTIMATORS)


@every
@given(drawn=rejected_batches())
def test_a_turns_tokens_share_one_finite_value(name: str, drawn: tuple[Batch, list[list[bool]]]) -> None:
    batch, kept = drawn
    before = batch.rewards.clone(), batch.mask.clone()
    for baseline in CHOICES["baseline"]:
        advantages = estimate(name, batch, baseline=baseline)
        assert advantages.isfinite().all()
        assert advantages.dtype is torch.float32
        assert (advantages[batch.mask == 0] == 0).all()
        assert len(per_turn(batch, advantages)) == len(kept)
    assert torch.equal(batch.rewards, before[0])
    assert torch.equal(batch.mask, before[1])


@every
def test_padding_rows_change_nothing_and_stay_zero(name: str) -> None:
    batch = build([[1.0, 0.5], [0.0, 2.0], [0.0]], [[(0, 2), (3, 5)], [(0, 1), (2, 6)], [(0, 3)]], ["a"] * 3)
    pad = torch.zeros(2, batch.rewards.shape[1])
    index = np.array([*batch.uids, "pad0", "pad1"], dtype=object)
    padded = ESTIMATORS[name](torch.cat([batch.rewards, pad]), torch.cat([batch.mask, pad.long()]), index=index)[0]
    assert torch.equal(padded[:3], estimate(name, batch))
    assert (padded[3:] == 0).all()


@every
def test_no_rows_one_row_and_rejected_rows_are_borne(name: str) -> None:
    empty = Batch([], [], [], torch.zeros(0, 4), torch.zeros(0, 4, dtype=torch.int64))
    assert estimate(name, empty).shape == (0, 4)
    alone = build([[0.5]], [[(0, 3)]], ["a"])
    # A right answer needs no other one to compare with.
    assert bool((estimate(name, alone) == 0).all()) == (name != "rsft")
    alone.mask[:] = 0
    assert (estimate(name, alone) == 0).all()


@every
def test_kl_in_reward_is_refused_with_its_remedy(name: str) -> None:
    with pytest.raises(ConfigError, match=r"actor\.use_kl_loss"):
        ESTIMATORS[name](torch.zeros(1, 2), torch.ones(1, 2), index=np.array(["a"]), config={"use_kl_in_reward": True})


@pytest.mark.parametrize(
    ("node", "key", "value"),
    [
        ("rec", "asymre_shift", float("inf")),
        ("rec", "asymre_shift", "low"),
        ("rec", "opmd_baseline", "median"),
        ("rec", "opmd_tau", 0.0),
        ("rec", "red_drop_seed", -1),
        ("rec", "red_drop_seed", 0.5),
        ("rec", "shift", 0.1),
        ("topr", "positive_share", 0.0),
        ("topr", "positive_share", 1.0),
        ("topr", "c", float("nan")),
        ("topr", "threshold", None),
        ("topr", "reward", "rank"),
        ("topr", "share", 0.1),
    ],
)
def test_bad_options_are_refused_by_name(node: str, key: str, value: object) -> None:
    (options,) = (kind for kind in OPTIONS if f"algorithm.{node}" == kind.NODE)
    with pytest.raises(ConfigError, match=rf"algorithm\.{node}\.{key} "):
        options.from_node(OmegaConf.create({key: value}))
