# SPDX-License-Identifier: Apache-2.0
"""The trainer's attention is there, and bears how the trainer spreads a model."""

import importlib.metadata

import pytest
from hydra import compose, initialize_config_module
from omegaconf import DictConfig

from verl_kernel.errors import ConfigError, EnvironmentNotReady
from verl_kernel.preflight.hardware import Machine, described
from verl_kernel.preflight.placement import CHOICE, SHARDS, attention, check_attention, check_shards

HERE = Machine("cuda", gpus=8)


def config(*overrides: str, recipe: str = "kernel_trloo") -> DictConfig:
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose(recipe, overrides=list(overrides))


def test_torchs_own_attention_needs_no_package():
    assert not list(check_attention(config(), HERE))


def test_verls_choice_is_flash_attention():
    assert attention(config("actor_rollout_ref.rollout.name=vllm", recipe="ppo_trainer")) == "flash_attention_2"


def test_flash_attention_without_its_package_is_refused():
    with pytest.raises(
        EnvironmentNotReady, match="flash_attention_2.*pip install --no-build-isolation flash-attn==2.8.3"
    ):
        list(check_attention(config(recipe="drkernel_8b"), HERE))


@pytest.mark.parametrize("package", ["flash-attn", "kernels"])
def test_either_package_will_do(package: str, monkeypatch):
    def version(name: str) -> str:
        if name == package:
            return "1"
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    assert not list(check_attention(config(recipe="drkernel_8b"), HERE))


@pytest.mark.parametrize("machine", [described("8xH100-80GB"), Machine("cuda", gpus=0, cluster="auto")])
def test_where_the_package_cannot_be_seen_it_is_said(machine: Machine):
    (note,) = check_attention(config(recipe="drkernel_8b"), machine)
    assert "flash-attn" in note


def test_a_sequence_is_shared_in_flash_attention_only():
    with pytest.raises(ConfigError, match=f"{SHARDS} is 2 and {CHOICE} is sdpa"):
        check_shards(config(f"{SHARDS}=2"))


@pytest.mark.parametrize("recipe", ["kernel_trloo", "drkernel_8b", "cpu_quickstart"])
def test_the_recipes_are_sound(recipe: str):
    check_shards(config(recipe=recipe))


@pytest.mark.parametrize("key", [SHARDS, "actor_rollout_ref.rollout.tensor_model_parallel_size"])
def test_what_does_not_divide_the_gpus_is_refused(key: str):
    with pytest.raises(ConfigError, match=f"{key} is 3 and there are 8 GPUs"):
        check_shards(config(f"{key}=3", recipe="drkernel_8b"))


def test_a_rollout_apart_is_divided_by_itself():
    apart = ("trainer_mode=separate_async", "actor_rollout_ref.rollout.n_gpus_per_node=2")
    with pytest.raises(ConfigError, match="actor_rollout_ref.rollout.nnodes"):
        check_shards(config(*apart, "actor_rollout_ref.rollout.tensor_model_parallel_size=4"))
