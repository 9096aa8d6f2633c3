# SPDX-License-Identifier: Apache-2.0
"""Pins where verl looks up the names of a configuration, and the words that its options may be."""

from contextlib import nullcontext
from typing import Any, get_args

import pytest
import torch
from omegaconf import OmegaConf
from verl.utils.tracking import Tracking

from tests.compat.pins import found
from verl_kernel.preflight import names, placement, unread_keys
from verl_kernel.preflight.trainer_mode import NEED_AN_ACCELERATOR
from verl_kernel.verl_keys import KEYS

ACTOR = "actor_rollout_ref.actor"
CORE = "verl.trainer.ppo.core_algos"
REWARDS = "verl.experimental.reward_loop.reward_manager.registry"


def words(key: str) -> tuple[str, ...]:
    arms = [arm for arm in get_args(KEYS[key]) if arm is not type(None)]
    return get_args(arms[0]) or tuple(arms)


@pytest.mark.parametrize(("registry", "look_up", "name"), [
    ("verl.trainer.ppo.v1.trainer_base:TRAINER_REGISTRY", "verl.trainer.ppo.v1:get_trainer_cls", "sync"),
    (f"{REWARDS}:REWARD_MANAGER", f"{REWARDS}:get_reward_manager_cls", "naive"),
])  # fmt: skip
def test_modes_and_reward_managers_are_in_a_registry(registry, look_up, name):
    assert found(look_up)(name) is found(registry)[name]
    with pytest.raises(ValueError, match="abc"):
        found(look_up)("abc")


def test_a_rollout_engine_is_looked_up_in_a_registry():
    registry = found("verl.workers.rollout.replica:RolloutReplicaRegistry")
    assert {"vllm", "sglang"} <= set(registry._registry)
    with pytest.raises(ValueError, match="vlm"):
        registry.get("vlm")


def test_an_agent_loop_is_a_target_by_name():
    registry = found("verl.experimental.agent_loop.agent_loop:_agent_loop_registry")
    assert registry["single_turn_agent"]["_target_"].endswith("SingleTurnAgentLoop")


def test_weight_transfers_are_looked_up_in_a_lenient_registry():
    registry = found("verl.checkpoint_engine:CheckpointEngineRegistry")
    assert "naive" in registry._registry
    failed = {module.removesuffix("_checkpoint_engine") for module in registry._import_errors}
    known = {*registry._registry, *NEED_AN_ACCELERATOR}
    for name in failed - {"hccl"}:  # hccl registers as nccl
        assert any(each.startswith(name) for each in known), name


def test_a_module_is_a_file_or_a_package_with_a_prefix():
    load = found("verl.utils.import_utils:load_module")
    assert load("pkg://torch.optim") is torch.optim
    with pytest.raises(FileNotFoundError):
        load("torch.optim")


def aggregated(word: str) -> Any:
    numbers = {"dp_size": 1, "batch_num_tokens": 2, "global_batch_size": 1, "loss_scale_factor": 1.0}
    return found(f"{CORE}:agg_loss")(torch.ones(1, 2), torch.ones(1, 2), word, **numbers)


def divergence(word: str) -> Any:
    return found(f"{CORE}:kl_penalty")(torch.zeros(1, 2), torch.zeros(1, 2), word)


def controller(word: str) -> Any:
    node = OmegaConf.create({"type": word, "kl_coef": 0.1, "horizon": 10, "target_kl": 0.1})
    return found(f"{CORE}:get_kl_controller")(node)


@pytest.mark.parametrize(("key", "use"), [
    (f"{ACTOR}.loss_agg_mode", aggregated), (f"{ACTOR}.kl_loss_type", divergence), ("algorithm.kl_penalty", divergence),
    ("algorithm.kl_ctrl.type", controller),
])  # fmt: skip
def test_the_words_of_an_option_are_verls(key, use):
    for word in words(key):
        assert use(word) is not None


@pytest.mark.parametrize(("rule", "refused"), [
    ({"rollout_is": "token"}, False),
    ({"rollout_is": "sequence", "rollout_is_threshold": "0.5_2.0"}, False),
    ({"rollout_is": "turn"}, True),
    ({"rollout_is": "token", "rollout_is_threshold": -1}, True),
    ({"rollout_rs": "seq_mean_k1,seq_max_k2", "rollout_rs_threshold": "0.9_1.1,3"}, False),
    ({"rollout_rs": "geometric", "rollout_rs_threshold": "2"}, True),
    ({"rollout_rs": "seq_mean_k1", "rollout_rs_threshold": "abc"}, True),
    ({"rollout_rs": "seq_mean_k1"}, True),
])  # fmt: skip
def test_a_rule_of_correction_is_refused_when_it_is_applied(rule, refused):
    correct = found("verl.trainer.ppo.rollout_corr_helper:compute_rollout_correction_and_rejection_mask")
    with pytest.raises(ValueError) if refused else nullcontext():
        correct(torch.zeros(1, 1), torch.zeros(1, 1), torch.ones(1, 1), **rule)


def test_loggers_are_known_by_names_in_a_list():
    known = [*Tracking.supported_backend, "tracking"]
    assert names._backends() == known
    assert {"console", "file", "tensorboard", "wandb", *placement.LOGGERS} <= {*known}


def test_the_whole_configuration_is_one_file_with_its_keys():
    nodes = unread_keys._verls_nodes()
    assert {"train_batch_size", "max_response_length"} <= {*nodes["data"]}
    assert "logger" in nodes["trainer"]
    assert "ray_kwargs.ray_init" not in nodes
