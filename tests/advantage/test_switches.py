# SPDX-License-Identifier: Apache-2.0
"""The estimators that compare a turn with its group: every pair of switches against the naive sums, and by hand."""

import math
from collections.abc import Callable
from statistics import fmean
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from verl.trainer.ppo.core_algos import get_adv_estimator_fn

from tests.advantage.batches import (
    EMPTY,
    Batch,
    assert_close,
    batches,
    build,
    estimate,
    estimated,
    masked,
    per_turn,
    reject,
    rejected_batches,
)
from tests.advantage.oracle import naive_advantages
from tests.tiers import pairwise
from verl_kernel.advantage import ESTIMATORS
from verl_kernel.advantage.options import TrlooOptions


def shifted(shift: float) -> Callable[[list[float]], float]:
    return lambda group: fmean(group) + shift


def log_mean_exp(tau: float) -> Callable[[list[float]], float]:
    return lambda group: tau * math.log(fmean(math.exp(value / tau) for value in group))


LOG_MEAN_EXP, WHOLE = {"opmd_baseline": "logavgexp"}, {"credit": "trajectory", "baseline": "padded"}
RULES: dict[str, tuple[str, dict[str, Any], Callable[[list[float]], float]]] = {
    "trloo": ("trloo", {}, fmean),
    "turn_grpo": ("turn_grpo", {}, fmean),
    "asymre_shift": ("asymre_shift", {}, shifted(-0.1)),
    "asymre_shift, 0.25": ("asymre_shift", {"asymre_shift": 0.25}, shifted(0.25)),
    "opmd_baseline": ("opmd_baseline", {}, fmean),
    "opmd_baseline, log": ("opmd_baseline", LOG_MEAN_EXP, log_mean_exp(1.0)),
    "opmd_baseline, log, 0.5": ("opmd_baseline", LOG_MEAN_EXP | {"opmd_tau": 0.5}, log_mean_exp(0.5)),
}
"""Name, options and what the returns of a group are compared with."""
CHOICES = {key: get_args(hint) for key, hint in get_type_hints(TrlooOptions).items() if get_origin(hint) is Literal}
BOOLS = (True, False)
COMBINATIONS = [
    {"rule": choice.pop("rule"), **choice}
    for rules, normalisers, factors in (
        (("trloo", "turn_grpo"), CHOICES["normaliser"], (1.0, 0.25, 0.0)),
        (tuple(RULES)[2:], ("none",), (1.0,)),  # nothing else is divided or weighted
    )
    for gammas, shapings in (
        ((0.0, 0.5, 0.9), CHOICES["shaping"]),
        ((1.0,), ("none", "difference")),  # the terminal correction needs a discount
    )
    for choice in pairwise(
        **CHOICES
        | {"rule": rules, "normaliser": normalisers, "gamma": gammas, "shaping": shapings}
        | {"negative_weight": factors}
        | {"count_rejected": BOOLS, "mask_void_turn": BOOLS}
    )
]
combinations = pytest.mark.parametrize("choice", COMBINATIONS, ids=lambda one: "-".join(map(str, one.values())))


def estimate_by(choice: dict[str, Any], batch: Batch) -> torch.Tensor:
    name, rec, _ = RULES[choice["rule"]]
    return estimate(name, batch, rec=rec, **{key: value for key, value in choice.items() if key != "rule"})


def expected_of(choice: dict[str, Any], batch: Batch, kept: list[list[bool]]) -> list[list[float]]:
    switches = dict(choice)
    name, _, value = RULES[switches.pop("rule")]
    switches["kept"] = None if switches.pop("count_rejected") else kept
    found = naive_advantages(batch.turn_rewards, batch.uids, leave_one_out=name == "trloo", value=value, **switches)
    return masked(found, kept)


@combinations
@settings(max_examples=12)
@given(drawn=rejected_batches())
def test_every_pair_of_switches_matches_the_naive_sums(choice, drawn):
    batch, kept = drawn
    advantages = estimate_by(choice, batch)
    assert_close(per_turn(batch, advantages), expected_of(choice, batch, kept))
    assert advantages.isfinite().all()
    assert (advantages[batch.mask == 0] == 0).all()


@combinations
def test_no_rows_and_rejected_rows_are_borne(choice):
    batch = build([[1.0, 0.5], [2.0]], [[(0, 2), (3, 5)], [(0, 3)]], ["a", "a"])
    assert (estimate_by(choice, reject(batch, [[False, False], [False]])) == 0).all()
    assert estimate_by(choice, EMPTY).shape == (0, 4)


def test_rec_group_mean_is_turn_grpo_by_another_name():
    assert ESTIMATORS["rec_group_mean"] is ESTIMATORS["turn_grpo"]


@pytest.mark.parametrize(("name", "switches", "verls", "turns"), [
    # verl's rloo leaves a group of one its raw score, its vectorised twin gives 0: our two singleton options.
    ("trloo", {"singleton": "raw"}, "rloo", 1), ("trloo", {"singleton": "zero"}, "rloo_vectorized", 1),
    ("trloo", {"singleton": "raw", **WHOLE}, "rloo", 4),
    ("turn_grpo", {"singleton": "raw", "normaliser": "deviation", **WHOLE}, "grpo", 4),
])  # fmt: skip
@settings(max_examples=30)
@given(data=st.data())
def test_one_turn_or_whole_trajectories_are_verls_own(name, switches, verls, turns, data):
    batch = data.draw(batches(max_turns=turns))
    expected, _ = get_adv_estimator_fn(verls)(batch.rewards.clone(), batch.mask, index=batch.index)
    torch.testing.assert_close(estimate(name, batch, **switches), expected.float(), atol=1e-4, rtol=1e-3)


def test_one_token_left_is_a_turn_that_counts():
    batch = build([[1.0], [3.0]], [[(0, 4)]] * 2, ["a"] * 2)
    batch.mask[1, :3] = 0
    values = estimate("trloo", batch, count_rejected=False)
    assert values[0, :4].tolist() == [-2.0] * 4
    assert values[1, :4].tolist() == [0, 0, 0, 2.0]


@pytest.mark.parametrize("baseline", ["turn", "padded"])
def test_calls_of_tools_are_part_of_the_one_turn(baseline):
    batch = build([[3.0], [1.0], [2.0]], [[(0, 6)], [(0, 2)], [(0, 6)]], ["a"] * 3)
    batch.mask[:, 2:4] = 0  # what the tool said
    values = estimate("trloo", batch, baseline=baseline)
    assert values[0, :6].tolist() == [1.5, 1.5, 0, 0, 1.5, 1.5]
    assert values[1, :6].tolist() == [-1.5, -1.5, 0, 0, 0, 0]
    assert values[2, :6].tolist() == [0.0] * 6


def test_breaking_a_working_kernel_is_punished_unless_masked():
    spans = [[(0, 2), (3, 5)]] * 3
    batch = build([[1.0, 0.0], [1.0, 2.0], [0.0, 0.0]], spans, ["a"] * 3)
    assert [row[1] for row in estimated("trloo", batch)] == [-1.0, 2.0, -1.0]
    assert estimated("trloo", batch, mask_void_turn=True) == [[-0.5, 0.0], [2.5, 2.0], [-2.0, -2.0]]
    penalty = build([[1.0, -0.5], [1.0, 2.0], [-1.0, -0.5]], spans, ["a"] * 3)
    assert [row[1] for row in estimated("trloo", penalty, mask_void_turn=True)] == [0.0, 2.5, -2.5]


def test_large_returns_and_small_temperatures_stay_finite():
    batch = build([[800.0], [-800.0], [3.0]], [[(0, 2)]] * 3, ["a", "a", "b"])
    for baseline in CHOICES["baseline"]:
        values = estimated("opmd_baseline", batch, rec=LOG_MEAN_EXP | {"opmd_tau": 0.01}, baseline=baseline)
        assert values == [[pytest.approx(0.01 * math.log(2), abs=1e-4)], [pytest.approx(-1600, abs=0.01)], [0.0]]
