# SPDX-License-Identifier: Apache-2.0
"""The loss as verl calls it, behind verl's own rollout correction, composed as a recipe composes it."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_module
from omegaconf import DictConfig
from verl.protocol import DataProto
from verl.trainer.ppo.core_algos import get_policy_loss_fn
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_add_to_batch
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.metric import AggregationType, Metric, reduce_metrics

import verl_kernel.plugin  # noqa: F401  registers the loss
from verl_kernel.errors import ConfigError
from verl_kernel.loss.options import TurnCorrectionOptions
from verl_kernel.loss.preflight import check_mismatch
from verl_kernel.loss.turn_corrected import correction_metrics, judge

MASK = torch.tensor([[1, 1, 0, 1, 1], [1, 1, 0, 1, 0]])
FINE = torch.zeros(2, 5)


def recipe(*overrides: str) -> DictConfig:
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("kernel_trloo", overrides=["actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1", *overrides])


def run(config: DictConfig, log_ratio: torch.Tensor, mask: torch.Tensor = MASK, **batch_info: Any) -> tuple[Any, ...]:
    """Loss, gradient and metrics of one step where pi_train / pi_rollout is exp(log_ratio)."""
    rollout = torch.full_like(log_ratio, -3.0)
    batch = DataProto.from_dict(
        {"old_log_probs": rollout + log_ratio, "rollout_log_probs": rollout, "response_mask": mask}
    )
    batch, _ = compute_rollout_correction_and_add_to_batch(batch, config.algorithm.rollout_correction)
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    actor.global_batch_info.update({"dp_size": 1, "batch_num_tokens": None, "global_batch_size": None} | batch_info)
    log_prob = batch.batch["old_log_probs"].clone().requires_grad_()
    loss, metrics = get_policy_loss_fn(actor.policy_loss["loss_mode"])(
        old_log_prob=batch.batch["old_log_probs"],
        log_prob=log_prob,
        advantages=torch.ones_like(log_prob),
        response_mask=batch.batch["response_mask"].bool(),
        loss_agg_mode=actor.loss_agg_mode,
        config=actor,
        rollout_is_weights=batch.batch.get("rollout_is_weights", None),
    )
    loss.backward()
    return loss.item(), log_prob.grad, metrics


@pytest.fixture(scope="module")
def turn_mrs() -> DictConfig:
    return recipe("mismatch=turn_mrs")


def test_without_mismatch_it_is_verls_own_loss(turn_mrs: DictConfig) -> None:
    ours, theirs = run(turn_mrs, FINE), run(recipe("mismatch=none"), FINE)
    assert ours[0] == pytest.approx(theirs[0])
    assert torch.allclose(ours[1], theirs[1])
    assert ours[2]["turn_corr/rejected"] == 0
    assert ours[2]["turn_corr/log_ratio"] == pytest.approx(0)


def test_a_rejected_turn_has_no_gradient_and_others_keep_theirs(turn_mrs: DictConfig) -> None:
    far = FINE.clone()
    far[0, 3:] = math.log(1.01)
    whole, rest = run(turn_mrs, FINE), run(turn_mrs, far)
    assert (rest[1][0, 3:] == 0).all()
    assert rest[1][0, 0] != 0
    kept = torch.ones_like(FINE).bool()
    kept[0, 3:] = False
    assert torch.allclose(rest[1][kept], whole[1][kept])
    assert (rest[2]["turn_corr/rejected"], rest[2]["turn_corr/judged"]) == (1, 4)


def test_verl_hands_over_ratios_that_it_did_not_cut(turn_mrs: DictConfig) -> None:
    # Mean 0 within the turn: only uncut ratios, e^9 and e^-9 of them, average out.
    swing = FINE.clone()
    swing[0, 0], swing[0, 1] = 9.0, -9.0
    metrics = run(turn_mrs, swing)[2]
    assert metrics["turn_corr/rejected"] == 0
    swing[0, 0], swing[0, 1] = 9.3, -9.3
    assert run(turn_mrs, swing)[2]["turn_corr/vetoed"] == 1


@pytest.mark.parametrize("mode", ["seq-mean-token-sum-norm", "seq-mean-token-mean", "token-mean"])
@pytest.mark.parametrize("global_batch_size", [None, 8])
def test_a_batch_of_nothing_but_rejected_turns_has_loss_zero(mode: str, global_batch_size: int | None) -> None:
    config = recipe("mismatch=turn_mrs", f"actor_rollout_ref.actor.loss_agg_mode={mode}")
    loss, gradient, metrics = run(config, FINE + 1.0, global_batch_size=global_batch_size)
    assert loss == 0
    assert (gradient == 0).all()
    assert metrics["turn_corr/rejected"] == metrics["turn_corr/judged"] == 4
    assert all(math.isfinite(value) for value in metrics.values())


def test_padding_does_not_dilute_the_rejected_share(turn_mrs: DictConfig) -> None:
    far = FINE.clone()
    far[0, 3:] = math.log(1.01)
    full = run(turn_mrs, far)[2]
    # Verl's trainer refuses an empty mask, but a micro-batch of its batch may hold nothing but padding.
    nothing = correction_metrics(judge(torch.ones(1, 2), torch.zeros(1, 2).bool(), TurnCorrectionOptions()))
    metrics = Metric.from_dict(full, AggregationType.MEAN)
    for name, metric in Metric.from_dict(nothing, AggregationType.MEAN).items():
        metrics[name].append(metric)
    found = reduce_metrics(metrics)
    assert found["turn_corr/rejected"] / found["turn_corr/judged"] == 1 / 4
    assert found["turn_corr/log_ratio"] / found["turn_corr/judged"] == pytest.approx(math.log(1.01) / 4, rel=1e-3)
    assert found["turn_corr/weight"] / found["turn_corr/tokens"] == 1


@pytest.mark.parametrize("preset", ["mrs", "mrs_tis"])
def test_verls_presets_bear_the_rejection_of_all_too(preset: str) -> None:
    loss, gradient, metrics = run(recipe(f"mismatch={preset}"), FINE + 1.0, global_batch_size=8)
    assert loss == 0
    assert (gradient == 0).all()
    assert all(math.isfinite(value) for value in metrics.values())


def test_turn_weights_are_the_product_cut_at_two() -> None:
    ratios = FINE.clone()
    ratios[0, :2] = math.log(1.2)
    ratios[0, 3:] = math.log(3.0)
    ratios[1, :2] = math.log(0.5)
    weighted, plain = run(recipe("mismatch=turn_tis"), ratios), run(recipe("mismatch=none"), ratios)
    expected = torch.tensor([[1.44, 1.44, 1, 2, 2], [0.25, 0.25, 1, 1, 1]])
    assert torch.allclose(weighted[1], plain[1] * expected)


def test_without_ratios_it_refuses(turn_mrs: DictConfig) -> None:
    actor = omega_conf_to_dataclass(turn_mrs.actor_rollout_ref.actor)
    with pytest.raises(ConfigError, match="rollout_correction.rollout_is to token"):
        get_policy_loss_fn("turn_corrected")(FINE, FINE, FINE, MASK, config=actor)


@pytest.mark.parametrize("preset", ["none", "mrs", "tis", "mrs_tis", "turn_mrs", "turn_tis"])
def test_presets_pass_the_check(preset: str) -> None:
    check_mismatch(recipe(f"mismatch={preset}"))


def test_what_verl_cannot_cut_passes() -> None:
    # verl cuts log-ratios at 20, and exp(20) is 4.85e8.
    check_mismatch(recipe("mismatch=turn_mrs", "algorithm.rollout_correction.rollout_is_threshold=4.9e8"))
    check_mismatch(recipe("mismatch=none", BYPASS))


LOSS = "actor_rollout_ref.actor.policy_loss"
BYPASS = "algorithm.rollout_correction.bypass_mode=true"
RS = "algorithm.rollout_correction.rollout_rs"
LOG_PROBS = "actor_rollout_ref.rollout.calculate_log_probs"


@pytest.mark.parametrize(
    ("overrides", "key", "remedy"),
    [
        (["mismatch=tis", f"{LOG_PROBS}=false"], "rollout_is", f"{LOG_PROBS}=true"),
        (["mismatch=mrs", f"{LOG_PROBS}=false"], "rollout_rs", "mismatch=none"),
        (["mismatch=mrs", f"{LOSS}.loss_mode=turn_corrected"], "rollout_is", "token"),
        (["mismatch=tis", f"{LOSS}.loss_mode=turn_corrected"], "rollout_is_threshold", "1.0e9"),
        (["mismatch=turn_mrs", f"{LOSS}.loss_mode=vanilla"], f"{LOSS}.turn_correction", "turn_corrected"),
        (["mismatch=turn_mrs", "kernelgym.max_turns=1"], "kernelgym.max_turns", "trajectory"),
        (["mismatch=turn_mrs", f"{LOSS}.turn_correction.low=2"], "turn_correction.low", "no ratio"),
        (["mismatch=turn_mrs", f"+{LOSS}.turn_correction.tow=2"], "turn_correction.tow", "known keys are"),
        (
            ["mismatch=turn_mrs", "algorithm.rollout_correction.rollout_is_batch_normalize=true"],
            "rollout_is_batch_normalize",
            "false",
        ),
        (["mismatch=mrs", BYPASS], "bypass_mode", "mismatch=none"),
        (["mismatch=tis", BYPASS], "bypass_mode", "mismatch=none"),
        (["mismatch=turn_mrs", BYPASS], "bypass_mode", "false"),
        (["mismatch=turn_mrs", "algorithm.rollout_correction.rollout_is_threshold=4.8e8"], "threshold", "1.0e9"),
        (["mismatch=turn_mrs", "algorithm.rollout_correction.rollout_is_threshold=0.5_5.0"], "threshold", "1.0e9"),
        (["mismatch=turn_mrs", f"{RS}=token_k2", f"{RS}_threshold=2.0"], "rollout_rs", "veto"),
        (["mismatch=turn_mrs", f"{RS}=token_k2"], "rollout_rs_threshold", "mismatch=mrs"),
    ],
)
def test_a_contradiction_is_refused_by_key_and_remedy(overrides: list[str], key: str, remedy: str) -> None:
    with pytest.raises(ConfigError) as error:
        check_mismatch(recipe(*overrides))
    assert key in str(error.value)
    assert remedy in str(error.value)
    assert "\n" not in str(error.value)
