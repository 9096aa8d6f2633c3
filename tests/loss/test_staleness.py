# SPDX-License-Identifier: Apache-2.0
"""A band made for the gap between two engines is kept away from samples of older weights."""

from __future__ import annotations

import pytest
from hydra import compose, initialize_config_module
from omegaconf import DictConfig

from verl_kernel.errors import ConfigError
from verl_kernel.loss.preflight import check_mismatch

SAMPLER = "trainer.v1.sampler.sampler_kwargs"
RS = "algorithm.rollout_correction.rollout_rs"
CARRY_OVER = [f"{SAMPLER}.group_filter=refill", "data.gen_batch_size=1", f"{SAMPLER}.group_carry_over=true"]
ASYNC = ["colocate_async", "separate_async"]


def recipe(*overrides: str) -> DictConfig:
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("kernel_trloo", overrides=list(overrides))


def refusal(*overrides: str) -> str:
    with pytest.raises(ConfigError) as error:
        check_mismatch(recipe(*overrides))
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("mode", ASYNC)
@pytest.mark.parametrize("preset", ["mrs", "mrs_tis", "turn_mrs"])
def test_a_narrow_band_is_refused_where_samples_are_older(mode: str, preset: str) -> None:
    sentence = refusal(f"trainer_mode={mode}", f"mismatch={preset}")
    assert f"trainer.v1.{mode}.num_warmup_batches is 1" in sentence
    assert "mismatch=stale_tis" in sentence
    assert f"{SAMPLER}.allow_narrow_band=true" in sentence


@pytest.mark.parametrize("mode", ASYNC)
@pytest.mark.parametrize("preset", ["none", "tis", "turn_tis", "stale_tis", "stale_clip"])
def test_other_presets_pass(mode: str, preset: str) -> None:
    check_mismatch(recipe(f"trainer_mode={mode}", f"mismatch={preset}"))


@pytest.mark.parametrize("mode", ["sync", *ASYNC])
def test_a_mode_by_itself_passes(mode: str) -> None:
    check_mismatch(recipe(f"trainer_mode={mode}"))


@pytest.mark.parametrize("preset", ["mrs", "turn_mrs"])
def test_a_narrow_band_passes_where_asked_for(preset: str) -> None:
    check_mismatch(recipe("trainer_mode=sync", f"mismatch={preset}"))
    mode = ("trainer_mode=colocate_async", f"mismatch={preset}")
    check_mismatch(recipe(*mode, f"{SAMPLER}.allow_narrow_band=true"))
    check_mismatch(recipe(*mode, "trainer.v1.colocate_async.num_warmup_batches=0"))


def test_prompts_carried_over_are_older_in_sync_too() -> None:
    assert f"{SAMPLER}.group_carry_over is true" in refusal(*CARRY_OVER, "mismatch=mrs")
    check_mismatch(recipe(*CARRY_OVER, "mismatch=stale_tis"))


@pytest.mark.parametrize(
    ("rules", "thresholds", "narrow"),
    [
        ("seq_mean_k1", "0.98_1.02", False),
        ("seq_mean_k1", "0.98_1.002", True),
        ("seq_mean_k1", "1.005", True),
        ("seq_mean_k1", "1.5", False),
        ("seq_max_k2,seq_mean_k1", "42.4,0.999_1.001", True),
        ("seq_mean_k3,seq_mean_k1", "1.001", True),
        ("seq_mean_k3", "0.999", False),
    ],
)
def test_verls_bounds_are_read_as_verl_reads_them(rules: str, thresholds: str, narrow: bool) -> None:
    overrides = ("trainer_mode=colocate_async", f"{RS}='{rules}'", f"{RS}_threshold='{thresholds}'")
    if narrow:
        assert f"{RS}_threshold holds the bound" in refusal(*overrides)
    else:
        check_mismatch(recipe(*overrides))


def test_clipping_needs_the_samplers_log_probabilities() -> None:
    log_probs = "actor_rollout_ref.rollout.calculate_log_probs"
    sentence = refusal("mismatch=stale_clip", f"{log_probs}=false")
    assert "bypass_mode" in sentence
    assert f"{log_probs}=true" in sentence
