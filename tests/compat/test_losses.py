# SPDX-License-Identifier: Apache-2.0
"""Pins what the policy losses for off-policy data lean on in verl."""

from __future__ import annotations

import ast
import dataclasses

import pytest
from verl.trainer.ppo import core_algos
from verl.workers.config import ActorConfig, PolicyLossConfig

from tests.compat.pins import parameters, source_of

OURS = ["rec_", "asymre_kl", "opmd_", "topr_taper"]


@pytest.mark.parametrize("name", ["vanilla", "gpg", "dro", "cispo", "gspo"])
def test_the_losses_that_ours_are_compared_with_are_registered(name: str) -> None:
    assert callable(core_algos.get_policy_loss_fn(name))


def test_losses_are_summed_over_the_whole_batch() -> None:
    assert parameters(core_algos.agg_loss) == [
        *("loss_mat", "loss_mask", "loss_agg_mode"),
        *("dp_size", "batch_num_tokens", "global_batch_size", "loss_scale_factor"),
    ]


def test_the_actors_config_has_a_clip_range_and_a_loss_node() -> None:
    names = {field.name for field in dataclasses.fields(ActorConfig)}
    assert {"clip_ratio", "clip_ratio_low", "clip_ratio_high", "policy_loss", "global_batch_info"} <= names


def test_the_loss_node_is_closed_and_answers_for_missing_keys() -> None:
    with pytest.raises(TypeError):
        PolicyLossConfig(rec={})
    assert PolicyLossConfig().get("rec", None) is None
    assert PolicyLossConfig().get("loss_mode") == "vanilla"


def test_verl_registers_no_loss_under_a_name_of_ours_itself() -> None:
    source = ast.unparse(source_of("trainer/ppo/core_algos.py"))
    assert not [name for name in OURS if f"@register_policy_loss('{name}" in source]


def test_bypass_mode_hands_over_the_rollouts_log_probs() -> None:
    source = ast.unparse(source_of("trainer/ppo/v1/trainer_base.py"))
    assert "data['old_log_probs'] = data.pop('rollout_log_probs')" in source
    assert "loss_mode" not in source
