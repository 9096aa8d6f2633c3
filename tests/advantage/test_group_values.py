# SPDX-License-Identifier: Apache-2.0
"""`rec_group_mean`, `asymre_shift` and `opmd_baseline` against naive sums, and the limits that their papers name."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from statistics import fmean

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from verl.trainer.ppo.core_algos import get_adv_estimator_fn

from tests.advantage.batches import Batch, batches, build
from tests.advantage.estimates import assert_close, estimate, per_turn
from tests.advantage.oracle import naive_advantages
from tests.advantage.test_switches import CHOICES, rejected_batches
from verl_kernel.advantage import ESTIMATORS


def shifted(shift: float) -> Callable[[list[float]], float]:
    return lambda group: fmean(group) + shift


def log_mean_exp(tau: float) -> Callable[[list[float]], float]:
    return lambda group: tau * math.log(fmean(math.exp(value / tau) for value in group))


CASES = [
    ("rec_group_mean", {}, fmean),
    ("asymre_shift", {}, shifted(-0.1)),
    ("asymre_shift", {"asymre_shift": 0.25}, shifted(0.25)),
    ("opmd_baseline", {}, fmean),
    ("opmd_baseline", {"opmd_baseline": "logavgexp"}, log_mean_exp(1.0)),
    ("opmd_baseline", {"opmd_baseline": "logavgexp", "opmd_tau": 0.5}, log_mean_exp(0.5)),
]
SWITCHES = [
    dict(zip(("gamma", "count_rejected", *CHOICES), values, strict=True))
    for values in itertools.product((0.0, 0.5), (True, False), *CHOICES.values())
    if "deviation" not in values
]


@settings(max_examples=300)
@given(drawn=rejected_batches(), case=st.sampled_from(CASES), switches=st.sampled_from(SWITCHES))
def test_every_switch_matches_the_naive_sums(
    drawn: tuple[Batch, list[list[bool]]], case: tuple, switches: dict
) -> None:
    batch, kept = drawn
    name, rec, value = case
    advantages = estimate(name, batch, rec=rec, **switches)
    expected = naive_advantages(
        batch.turn_rewards,
        batch.uids,
        switches["gamma"],
        switches["singleton"],
        leave_one_out=False,
        kept=None if switches["count_rejected"] else kept,
        shaping=switches["shaping"],
        baseline=switches["baseline"],
        credit=switches["credit"],
        value=value,
    )
    masked = [[v * on for v, on in zip(*row, strict=True)] for row in zip(expected, kept, strict=True)]
    assert_close(per_turn(batch, advantages), masked)


def test_rec_group_mean_is_turn_grpo_by_another_name() -> None:
    assert ESTIMATORS["rec_group_mean"] is ESTIMATORS["turn_grpo"]


@given(batches(max_turns=1))
def test_the_mean_of_single_turns_is_grpo_without_deviation(batch: Batch) -> None:
    grpo = get_adv_estimator_fn("grpo")
    expected, _ = grpo(batch.rewards.clone(), batch.mask, index=batch.index, norm_adv_by_std_in_grpo=False)
    # verl leaves a group of one its raw score.
    torch.testing.assert_close(
        estimate("rec_group_mean", batch, singleton="raw"), expected.float(), atol=1e-5, rtol=1e-4
    )


@given(batches())
def test_whole_trajectories_by_their_deviation_are_verls_grpo(batch: Batch) -> None:
    expected, _ = get_adv_estimator_fn("grpo")(batch.rewards.clone(), batch.mask, index=batch.index)
    switches = {"singleton": "raw", "credit": "trajectory", "baseline": "padded", "normaliser": "deviation"}
    own = estimate("turn_grpo", batch, **switches)
    torch.testing.assert_close(own, expected.float(), atol=1e-4, rtol=1e-3)


@given(batch=batches(), shift=st.sampled_from([-0.1, 0.0, 0.5]))
def test_asymre_adds_one_number_to_grouped_advantages(batch: Batch, shift: float) -> None:
    plain = per_turn(batch, estimate("rec_group_mean", batch))
    moved = per_turn(batch, estimate("asymre_shift", batch, rec={"asymre_shift": shift}))
    for row, (uid, values) in enumerate(zip(batch.uids, plain, strict=True)):
        for t, value in enumerate(values):
            company = sum(own == uid and len(other) > t for own, other in zip(batch.uids, plain, strict=True)) > 1
            assert moved[row][t] == pytest.approx(value - shift * company, abs=1e-5)


@given(batch=batches(min_turns=2, max_turns=2))
def test_log_average_exp_goes_from_mean_to_maximum(batch: Batch) -> None:
    hot, cold = ({"opmd_baseline": "logavgexp", "opmd_tau": tau} for tau in (1e6, 1e-3))
    mean = per_turn(batch, estimate("opmd_baseline", batch))
    for found, expected in zip(per_turn(batch, estimate("opmd_baseline", batch, rec=hot)), mean, strict=True):
        assert found == pytest.approx(expected, abs=1e-4)
    largest = naive_advantages(batch.turn_rewards, batch.uids, 1.0, "zero", leave_one_out=False, value=max)
    for found, expected in zip(per_turn(batch, estimate("opmd_baseline", batch, rec=cold)), largest, strict=True):
        # tau * log N is what is left of the mean over N.
        assert found == pytest.approx(expected, abs=1e-3 * math.log(8) + 1e-5)


def test_large_returns_and_small_temperatures_stay_finite() -> None:
    batch = build([[800.0], [-800.0], [3.0]], [[(0, 2)]] * 3, ["a", "a", "b"])
    for baseline in CHOICES["baseline"]:
        rec = {"opmd_baseline": "logavgexp", "opmd_tau": 0.01}
        values = per_turn(batch, estimate("opmd_baseline", batch, rec=rec, baseline=baseline))
        assert values == [[pytest.approx(0.01 * math.log(2), abs=1e-4)], [pytest.approx(-1600, abs=0.01)], [0.0]]
