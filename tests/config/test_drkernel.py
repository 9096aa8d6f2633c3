# SPDX-License-Identifier: Apache-2.0
"""The 8B and 14B recipes compose and pass verl's dataclasses, verl's own checks and ours."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import verl.trainer
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf
from transformers import Qwen3Config
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import omega_conf_to_dataclass, validate_config
from verl.workers.engine_workers import TrainingWorkerConfig

from verl_kernel.advantage.options import check_algorithm
from verl_kernel.loss.preflight import check_mismatch
from verl_kernel.preflight.hardware import described
from verl_kernel.preflight.placement import check_judges
from verl_kernel.reward.options import parse_options
from verl_kernel.sampler.options import PRSOptions
from verl_kernel.sampler.preflight import check_switches
from verl_kernel.verl_keys import find

RL = ["drkernel_8b", "drkernel_14b"]
SFT = ["drkernel_8b_sft", "drkernel_14b_sft"]
OURS = ("trloo", "rec", "topr", "ada")
"""Nodes of the estimators under `algorithm`."""
QWEN3_8B = {"hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36, "num_attention_heads": 32}


@pytest.fixture(autouse=True)
def hydra() -> Iterator[None]:
    with initialize_config_dir(str(Path(verl.trainer.__file__).parent / "config"), version_base=None):
        yield
    GlobalHydra.instance().clear()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model's folder without weights: verl's model configuration reads config and tokenizer."""
    from verl_kernel.world.tokenizer import train_tokenizer

    Qwen3Config(**QWEN3_8B, num_key_value_heads=8, head_dim=128, architectures=["Qwen3ForCausalLM"]).save_pretrained(
        tmp_path
    )
    train_tokenizer(["x = x + 1"], 300).save_pretrained(tmp_path)
    return tmp_path


def composed(recipe: str, *overrides: str) -> DictConfig:
    config = compose(recipe, overrides=list(overrides))
    OmegaConf.resolve(config)
    return config


def flat(config: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(config, DictConfig):
        config = OmegaConf.to_container(config)
    if not isinstance(config, dict):
        return {prefix: config}
    return {name: value for key in config for name, value in flat(config[key], f"{prefix}.{key}").items()}


@pytest.mark.parametrize("mode", ["sync", "colocate_async", "separate_async"])
@pytest.mark.parametrize("recipe", RL)
def test_reinforcement_learning_passes_verls_checks_and_ours(recipe: str, mode: str, folder: Path):
    config = composed(recipe, f"trainer_mode={mode}", f"cold_start_model={folder}")
    validate_config(config, need_reference_policy(config), need_critic(config))
    node = config.actor_rollout_ref
    actor, rollout, model = (omega_conf_to_dataclass(node[key]) for key in ("actor", "rollout", "model"))
    # verl reads this node as it is; the class only knows its own keys.
    omega_conf_to_dataclass(DictConfig({key: value for key, value in config.algorithm.items() if key not in OURS}))
    assert (actor.clip_ratio_low, actor.clip_ratio_high, actor.clip_ratio_c) == (0.2, 0.28, 3.0)
    assert actor.engine.ulysses_sequence_parallel_size == 4
    assert actor.engine.param_offload
    assert actor.optim.lr == 1e-6
    assert actor.optim.lr_scheduler_type == "constant"
    assert (rollout.n, rollout.val_kwargs.n, rollout.val_kwargs.top_p) == (16, 8, 0.95)
    assert model.hf_config.num_hidden_layers == 36
    options = parse_options(find(config, "kernelgym"))
    assert options.env.float32 == "tf32"
    assert not list(check_judges(config, described("2x8xH100-80GB")))
    assert check_algorithm(config.algorithm).mask_void_turn
    sampler = PRSOptions.from_node(config.trainer.v1.sampler.sampler_kwargs)
    assert (sampler.group_filter, sampler.group_spread, sampler.group_carry_over) == ("refill", "last_turn", False)
    check_switches(config)
    check_mismatch(config)


@pytest.mark.parametrize("recipe", RL)
def test_a_trajectory_fits_the_context_and_a_micro_batch(recipe: str):
    config = composed(recipe)
    options, actor = parse_options(find(config, "kernelgym")).rollout, config.actor_rollout_ref.actor
    rollout = config.actor_rollout_ref.rollout
    longest = config.data.max_prompt_length + config.data.max_response_length
    assert longest <= rollout.max_model_len <= actor.ppo_max_token_len_per_gpu * actor.ulysses_sequence_parallel_size
    answers = options.max_turns * options.turn_tokens
    # Even at one token a character the feedback between the turns fits.
    assert answers + (options.max_turns - 1) * options.feedback_chars <= config.data.max_response_length


@pytest.mark.parametrize("recipe", SFT)
def test_the_cold_start_passes_verls_dataclasses(recipe: str, folder: Path):
    config = composed(recipe, f"model.path={folder}")
    keys = ("model", "engine", "optim", "checkpoint", "profiler")
    parts = {key: omega_conf_to_dataclass(config[key]) for key in keys}
    TrainingWorkerConfig(
        model_type="language_model",
        model_config=parts["model"],
        engine_config=parts["engine"],
        optimizer_config=parts["optim"],
        checkpoint_config=parts["checkpoint"],
        profiler_config=parts["profiler"],
    )
    assert parts["optim"].lr == 2e-5
    assert parts["optim"].lr_scheduler_type == "cosine"
    assert "hf_model" in parts["checkpoint"].save_contents
    shards = parts["engine"].ulysses_sequence_parallel_size
    assert config.data.max_token_len_per_gpu * shards >= config.data.max_length
    assert config.data.train_batch_size % (config.trainer.n_gpus_per_node // shards) == 0


@pytest.mark.parametrize(("small", "large"), [RL, SFT])
def test_14b_differs_from_8b_in_model_and_names_only(small: str, large: str):
    ours, theirs = flat(composed(small)), flat(composed(large))
    assert ours.keys() == theirs.keys()
    differing = {key.split(".")[-1] for key in ours if ours[key] != theirs[key]}
    names = {"path", "served_model_name", "cold_start_model", "experiment_name", "default_local_dir"}
    assert differing
    assert differing <= names


def test_every_script_names_a_recipe_there_is():
    recipes = Path(__file__).parents[2] / "recipes"
    scripts = {script: script.read_text() for size in RL for script in (recipes / size).glob("*.sh")}
    assert len(scripts) == 4
    for script, text in scripts.items():
        name = text.split("--config-name=")[1].split()[0]
        assert name == script.parent.name + ("_sft" if script.stem == "run_sft" else "")
        compose(name)
