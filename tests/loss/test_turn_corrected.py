# SPDX-License-Identifier: Apache-2.0
"""Rejection and weights of turns: against the paper's formula, and as verl calls the loss behind its correction."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from verl.protocol import DataProto
from verl.trainer.ppo.core_algos import get_policy_loss_fn
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_add_to_batch
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.metric import AggregationType, Metric, reduce_metrics

import verl_kernel.plugin  # noqa: F401  registers the loss
from tests.loss.cases import composed, segments
from verl_kernel.errors import ConfigError
from verl_kernel.loss.options import TurnCorrectionOptions
from verl_kernel.loss.turn_corrected import correction_metrics, judge

MRS = {"low": 0.999, "high": 1.001, "veto": 1e-4}


def naive_weights(logs: list[float], mask: list[int], options: TurnCorrectionOptions) -> list[float]:
    weights = [0.0] * len(mask)
    for columns in segments(mask, options.level):
        tokens = [logs[c] for c in columns]
        w = math.exp(sum(tokens) / len(tokens))
        stays = (options.low or 0) <= w <= (options.high or math.inf)
        stays = stays and all(math.exp(value) >= (options.veto or 0) for value in tokens)
        for c in columns:
            ratios = {"token": math.exp(logs[c]), "geometric": w, "product": math.exp(sum(tokens))}
            weights[c] = stays * (1.0 if options.weights == "none" else min(ratios[options.weights], options.cap))
    return weights


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[list[float]], list[list[int]]]:
    rows, width = draw(st.integers(1, 4)), draw(st.integers(1, 12))
    log = st.sampled_from([0.0, 5e-4, -5e-4, 2e-3, -2e-3, 0.7, -0.7, 9.0, -9.0, -9.5, 12.0, -19.0])
    row = st.lists(log, min_size=width, max_size=width)
    mask = st.lists(st.sampled_from([0, 1, 1]), min_size=width, max_size=width)
    return [draw(row) for _ in range(rows)], [draw(mask) for _ in range(rows)]


@given(
    batch=batches(),
    level=st.sampled_from(["turn", "trajectory"]),
    weights=st.sampled_from(["none", "token", "geometric", "product"]),
    bounds=st.sampled_from([{}, MRS, {"low": 0.5}, {"high": 2.0}, {"veto": 1e-4}, {"cap": 5.0}]),
)
def test_every_rule_matches_the_formula(batch, level, weights, bounds):
    logs, mask = batch
    options = TurnCorrectionOptions(level=level, weights=weights, **bounds)
    verdicts = judge(torch.tensor(logs).exp(), torch.tensor(mask).bool(), options)
    expected = [naive_weights(*row, options) for row in zip(logs, mask, strict=True)]
    torch.testing.assert_close(verdicts.weights, torch.tensor(expected), rtol=1e-4, atol=1e-7)
    assert len(verdicts.kept) == sum(len(segments(row, level)) for row in mask)
    assert all(math.isfinite(value) for value in correction_metrics(verdicts).values())


def test_products_of_long_turns_are_cut_before_they_overflow():
    options = TurnCorrectionOptions(weights="product")
    assert (judge(torch.full((1, 4000), 3.0), torch.ones(1, 4000).bool(), options).weights == 2).all()


@pytest.mark.parametrize("bound", ["low", "high", "veto"])
def test_a_turn_that_reaches_a_bound_stays(bound):
    ratios, mask = torch.full((1, 3), 0.5), torch.ones(1, 3).bool()
    assert judge(ratios, mask, TurnCorrectionOptions(**{bound: 0.5})).kept.tolist() == [True]


@pytest.mark.parametrize(("weights", "expected"), [("token", [0.5, 4.0, 5.0]), ("product", [5.0] * 3)])
def test_weights_are_cut_at_the_cap(weights, expected):
    options = TurnCorrectionOptions(weights=weights, cap=5.0)
    found = judge(torch.tensor([[0.5, 4.0, 8.0]]), torch.ones(1, 3).bool(), options).weights
    torch.testing.assert_close(found, torch.tensor([expected]))


def test_metrics_are_counts_and_sums():
    mask = torch.tensor([[1, 1, 0, 1, 1], [1, 1, 1, 0, 1]]).bool()
    ratios = torch.tensor([[1.0, 1.0, 7.0, 2.0, 2.0], [1e-5, 1.0, 1.0, 7.0, 1.0]])
    verdicts = judge(ratios, mask, TurnCorrectionOptions(high=1.5, veto=1e-4, weights="token"))
    assert correction_metrics(verdicts) == {
        "turn_corr/judged": 4, "turn_corr/rejected": 2, "turn_corr/vetoed": 1,
        "turn_corr/log_ratio": pytest.approx(math.log(2) + math.log(1e-5) / 3), "turn_corr/tokens": 3,
        "turn_corr/weight": 3,
    }  # fmt: skip


@pytest.mark.parametrize("mask", [torch.zeros(2, 3), torch.zeros(0, 3), torch.zeros(2, 0)])
def test_no_token_is_no_turn(mask):
    verdicts = judge(torch.ones_like(mask), mask.bool(), TurnCorrectionOptions(**MRS))
    assert len(verdicts.kept) == 0
    assert (verdicts.weights == 0).all()
    assert set(correction_metrics(verdicts).values()) == {0.0}


MASK = torch.tensor([[1, 1, 0, 1, 1], [1, 1, 0, 1, 0]])
FINE = torch.zeros(2, 5)


def run(log_ratio: torch.Tensor, *overrides: str, **batch_info: Any) -> tuple[Any, ...]:
    """Loss, gradient and metrics of one step where pi_train / pi_rollout is exp(log_ratio), by default of turn_mrs."""
    config = composed(*(overrides or ("mismatch=turn_mrs",)))
    rollout = torch.full_like(log_ratio, -3.0)
    tensors = {"old_log_probs": rollout + log_ratio, "rollout_log_probs": rollout, "response_mask": MASK}
    rule = config.algorithm.rollout_correction
    batch, _ = compute_rollout_correction_and_add_to_batch(DataProto.from_dict(tensors), rule)
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    actor.global_batch_info.update({"dp_size": 1, "batch_num_tokens": None, "global_batch_size": None} | batch_info)
    log_prob = batch.batch["old_log_probs"].clone().requires_grad_()
    loss, metrics = get_policy_loss_fn(actor.policy_loss["loss_mode"])(
        old_log_prob=batch.batch["old_log_probs"], log_prob=log_prob, advantages=torch.ones_like(log_prob),
        response_mask=batch.batch["response_mask"].bool(), loss_agg_mode=actor.loss_agg_mode, config=actor,
        rollout_is_weights=batch.batch.get("rollout_is_weights", None),
    )  # fmt: skip
    loss.backward()
    return loss.item(), log_prob.grad, metrics


def test_without_mismatch_it_is_verls_own_loss():
    ours, theirs = run(FINE), run(FINE, "mismatch=none")
    assert ours[0] == pytest.approx(theirs[0])
    assert torch.allclose(ours[1], theirs[1])
    assert ours[2]["turn_corr/rejected"] == 0
    assert ours[2]["turn_corr/log_ratio"] == pytest.approx(0)


def test_a_rejected_turn_has_no_gradient_and_others_keep_theirs():
    far = FINE.clone()
    far[0, 3:] = math.log(1.01)
    whole, rest = run(FINE), run(far)
    assert (rest[1][0, 3:] == 0).all()
    assert rest[1][0, 0] != 0
    kept = torch.ones_like(FINE).bool()
    kept[0, 3:] = False
    assert torch.allclose(rest[1][kept], whole[1][kept])
    assert (rest[2]["turn_corr/rejected"], rest[2]["turn_corr/judged"]) == (1, 4)


def test_verl_hands_over_ratios_that_it_did_not_cut():
    # Mean 0 within the turn: only uncut ratios, e^9 and e^-9 of them, average out.
    swing = FINE.clone()
    swing[0, 0], swing[0, 1] = 9.0, -9.0
    assert run(swing)[2]["turn_corr/rejected"] == 0
    swing[0, 0], swing[0, 1] = 9.3, -9.3
    assert run(swing)[2]["turn_corr/vetoed"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["seq-mean-token-sum-norm", "seq-mean-token-mean", "token-mean"])
@pytest.mark.parametrize("global_batch_size", [None, 8])
def test_a_batch_of_nothing_but_rejected_turns_has_loss_zero(mode, global_batch_size):
    overrides = ("mismatch=turn_mrs", f"actor_rollout_ref.actor.loss_agg_mode={mode}")
    loss, gradient, metrics = run(FINE + 1.0, *overrides, global_batch_size=global_batch_size)
    assert loss == 0
    assert (gradient == 0).all()
    assert metrics["turn_corr/rejected"] == metrics["turn_corr/judged"] == 4
    assert all(math.isfinite(value) for value in metrics.values())


def test_padding_does_not_dilute_the_rejected_share():
    far = FINE.clone()
    far[0, 3:] = math.log(1.01)
    full = run(far)[2]
    # Verl's trainer refuses an empty mask, but a micro-batch of its batch may hold nothing but padding.
    nothing = correction_metrics(judge(torch.ones(1, 2), torch.zeros(1, 2).bool(), TurnCorrectionOptions()))
    metrics = Metric.from_dict(full, AggregationType.MEAN)
    for name, metric in Metric.from_dict(nothing, AggregationType.MEAN).items():
        metrics[name].append(metric)
    found = reduce_metrics(metrics)
    assert found["turn_corr/rejected"] / found["turn_corr/judged"] == 1 / 4
    assert found["turn_corr/log_ratio"] / found["turn_corr/judged"] == pytest.approx(math.log(1.01) / 4, rel=1e-3)
    assert found["turn_corr/weight"] / found["turn_corr/tokens"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["mrs", "mrs_tis"])
def test_verls_presets_bear_the_rejection_of_all_too(preset):
    loss, gradient, metrics = run(FINE + 1.0, f"mismatch={preset}", global_batch_size=8)
    assert loss == 0
    assert (gradient == 0).all()
    assert all(math.isfinite(value) for value in metrics.values())


def test_turn_weights_are_the_product_cut_at_two():
    ratios = FINE.clone()
    ratios[0, :2] = math.log(1.2)
    ratios[0, 3:] = math.log(3.0)
    ratios[1, :2] = math.log(0.5)
    weighted, plain = run(ratios, "mismatch=turn_tis"), run(ratios, "mismatch=none")
    assert torch.allclose(weighted[1], plain[1] * torch.tensor([[1.44, 1.44, 1, 2, 2], [0.25, 0.25, 1, 1, 1]]))


def test_without_ratios_it_refuses():
    actor = omega_conf_to_dataclass(composed("mismatch=turn_mrs").actor_rollout_ref.actor)
    with pytest.raises(ConfigError, match="rollout_correction.rollout_is to token"):
        get_policy_loss_fn("turn_corrected")(FINE, FINE, FINE, MASK, config=actor)
