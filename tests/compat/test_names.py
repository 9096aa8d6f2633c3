# SPDX-License-Identifier: Apache-2.0
"""Pins where verl looks up the names of a configuration, and the words that its options may be."""

from __future__ import annotations

from typing import Any, get_args

import pytest
import torch
from omegaconf import OmegaConf

from verl_kernel.preflight.trainer_mode import NEED_AN_ACCELERATOR
from verl_kernel.verl_keys import KEYS

ACTOR = "actor_rollout_ref.actor"


def words(key: str) -> tuple[str, ...]:
    hint = KEYS[key]
    arms = [arm for arm in get_args(hint) if arm is not type(None)]
    return get_args(arms[0]) or tuple(arms)


def test_a_trainer_mode_is_looked_up_in_a_registry() -> None:
    from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY, get_trainer_cls

    assert get_trainer_cls("sync") is TRAINER_REGISTRY["sync"]
    with pytest.raises(ValueError, match="abc"):
        get_trainer_cls("abc")


def test_a_rollout_engine_is_looked_up_in_a_registry() -> None:
    from verl.workers.rollout.replica import RolloutReplicaRegistry

    assert {"vllm", "sglang"} <= set(RolloutReplicaRegistry._registry)
    with pytest.raises(ValueError, match="vlm"):
        RolloutReplicaRegistry.get("vlm")


def test_weight_transfers_are_looked_up_in_a_lenient_registry() -> None:
    from verl.checkpoint_engine import CheckpointEngineRegistry

    assert "naive" in CheckpointEngineRegistry._registry
    failed = {module.removesuffix("_checkpoint_engine") for module in CheckpointEngineRegistry._import_errors}
    known = {*CheckpointEngineRegistry._registry, *NEED_AN_ACCELERATOR}
    for name in failed - {"hccl"}:  # hccl registers as nccl
        assert any(each.startswith(name) for each in known), name


def test_a_module_is_a_file_or_a_package_with_a_prefix() -> None:
    from verl.utils.import_utils import load_module

    assert load_module("pkg://torch.optim") is torch.optim
    with pytest.raises(FileNotFoundError):
        load_module("torch.optim")


@pytest.mark.parametrize("word", words(f"{ACTOR}.loss_agg_mode"))
def test_a_way_to_aggregate_is_one_of_verls(word: str) -> None:
    from verl.trainer.ppo.core_algos import agg_loss

    ones = torch.ones(1, 2)
    numbers = {"dp_size": 1, "batch_num_tokens": 2, "global_batch_size": 1, "loss_scale_factor": 1.0}
    assert torch.isfinite(agg_loss(loss_mat=ones, loss_mask=ones, loss_agg_mode=word, **numbers))


@pytest.mark.parametrize("key", [f"{ACTOR}.kl_loss_type", "algorithm.kl_penalty"])
def test_a_divergence_is_one_of_verls(key: str) -> None:
    from verl.trainer.ppo.core_algos import kl_penalty

    for word in words(key):
        assert kl_penalty(torch.zeros(1, 2), torch.zeros(1, 2), word).shape == (1, 2)


@pytest.mark.parametrize("word", words("algorithm.kl_ctrl.type"))
def test_a_controller_is_one_of_verls(word: str) -> None:
    from verl.trainer.ppo.core_algos import get_kl_controller

    node = OmegaConf.create({"type": word, "kl_coef": 0.1, "horizon": 10, "target_kl": 0.1})
    assert get_kl_controller(node).value == 0.1


@pytest.mark.parametrize(
    ("rule", "refused"),
    [
        ({"rollout_is": "token"}, False),
        ({"rollout_is": "sequence", "rollout_is_threshold": "0.5_2.0"}, False),
        ({"rollout_is": "turn"}, True),
        ({"rollout_is": "token", "rollout_is_threshold": -1}, True),
        ({"rollout_rs": "seq_mean_k1,seq_max_k2", "rollout_rs_threshold": "0.9_1.1,3"}, False),
        ({"rollout_rs": "geometric", "rollout_rs_threshold": "2"}, True),
        ({"rollout_rs": "seq_mean_k1", "rollout_rs_threshold": "abc"}, True),
        ({"rollout_rs": "seq_mean_k1"}, True),
    ],
)
def test_a_rule_of_correction_is_refused_when_it_is_applied(rule: dict[str, Any], refused: bool) -> None:
    from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_rejection_mask as correct

    token = torch.zeros(1, 1)
    if refused:
        with pytest.raises(ValueError):
            correct(token, token, torch.ones(1, 1), **rule)
    else:
        correct(token, token, torch.ones(1, 1), **rule)
