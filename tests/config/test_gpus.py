# SPDX-License-Identifier: Apache-2.0
"""The sizes of `gpus`: what is checked of a start holds for each, and a recipe without a GPU gets none of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hydra import compose, initialize_config_module
from omegaconf import DictConfig, OmegaConf
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import omega_conf_to_dataclass, validate_config

from verl_kernel import config as folder
from verl_kernel.loss.preflight import check_mismatch
from verl_kernel.reward.options import parse_options
from verl_kernel.sampler.preflight import check_switches
from verl_kernel.verl_keys import find

SIZES = ("one", "eight", "sixteen")
MODES = ("sync", "colocate_async", "separate_async")
EXPERIMENTS = ("cpu_quickstart", "cpu_hard", "cpu_smollm2", "cpu_tools")


@pytest.fixture(autouse=True)
def hydra() -> Iterator[None]:
    with initialize_config_module("verl.trainer.config", version_base=None):
        yield


def composed(size: str, *overrides: str, recipe: str = "kernel_trloo") -> DictConfig:
    config = compose(recipe, overrides=[f"gpus={size}", *overrides])
    OmegaConf.resolve(config)
    return config


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", SIZES)
def test_verl_accepts_the_sizes(size: str, mode: str):
    config = composed(size, f"trainer_mode={mode}")
    validate_config(config, need_reference_policy(config), need_critic(config))
    for node in ("actor", "rollout"):
        omega_conf_to_dataclass(config.actor_rollout_ref[node])
    check_switches(config)
    check_mismatch(config)


@pytest.mark.parametrize("size", SIZES)
def test_a_row_fits_the_context_and_a_micro_batch(size: str):
    config = composed(size)
    longest = config.data.max_prompt_length + config.data.max_response_length
    assert longest <= config.actor_rollout_ref.rollout.max_model_len
    assert longest <= config.actor_rollout_ref.actor.ppo_max_token_len_per_gpu


@pytest.mark.parametrize("size", SIZES)
def test_attention_needs_no_package_and_no_sequence_parallelism(size: str):
    node = composed(size).actor_rollout_ref
    assert node.model.override_config.attn_implementation == "sdpa"
    assert node.actor.ulysses_sequence_parallel_size == 1


@pytest.mark.parametrize(("size", "trains", "judges"), [("one", 1, 0), ("eight", 4, 4), ("sixteen", 8, 8)])
def test_trainer_and_judges_share_the_gpus(size: str, trains: int, judges: int):
    config = composed(size)
    options = parse_options(find(config, "kernelgym")).env
    assert config.trainer.nnodes * config.trainer.n_gpus_per_node == trains
    assert options.num_judges * options.gpus_per_judge == judges
    assert options.device == ("cuda" if judges else "cpu")


@pytest.mark.parametrize("size", SIZES)
def test_nothing_asks_for_an_account(size: str):
    assert list(composed(size).trainer.logger) == ["console", "tensorboard", "file"]


@pytest.mark.parametrize("recipe", ["drkernel_8b", "drkernel_14b"])
def test_the_published_recipe_fits_on_one_node(recipe: str):
    config = composed("eight", recipe=recipe)
    assert (config.trainer.n_gpus_per_node, config.kernelgym.num_judges) == (4, 4)
    assert config.trainer.n_gpus_per_node % config.actor_rollout_ref.actor.ulysses_sequence_parallel_size == 0


def test_the_published_recipe_keeps_verls_attention():
    model = composed("sixteen", recipe="drkernel_8b").actor_rollout_ref.model
    assert model.override_config.attn_implementation == "flash_attention_2"
    assert not model.use_fused_kernels


@pytest.mark.parametrize("recipe", EXPERIMENTS)
def test_a_recipe_without_a_gpu_has_no_sizes_of_gpus(recipe: str):
    assert compose(recipe, return_hydra_config=True).hydra.runtime.choices.gpus == "none"


def test_no_gpus_are_no_keys():
    assert not OmegaConf.load(Path(folder.__path__[0]) / "gpus" / "none.yaml")


def test_the_recipe_without_a_choice_is_for_one_node_of_8():
    assert compose("kernel_trloo") == compose("kernel_trloo", overrides=["gpus=eight"])
