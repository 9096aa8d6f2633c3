# SPDX-License-Identifier: Apache-2.0
"""The recipes compose with verl's own configuration, and pass its dataclasses, its checks and ours."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from tests.config.composed import CONFIG, composed
from tests.tiers import one_of_each, thinned
from verl_kernel.advantage.options import check_algorithm
from verl_kernel.loss.preflight import check_mismatch
from verl_kernel.preflight.hardware import described
from verl_kernel.preflight.placement import check_judges
from verl_kernel.reward.options import parse_options
from verl_kernel.sampler.options import PRSOptions
from verl_kernel.sampler.preflight import check_switches
from verl_kernel.verl_keys import find

pytestmark = pytest.mark.slow

RECIPES = ("kernel_trloo", "cpu_quickstart", "cpu_smollm2")
MODES = ("sync", "colocate_async", "separate_async")
LARGE = [*(("drkernel_8b", mode) for mode in MODES), ("drkernel_14b", "separate_async")]
UNCHOSEN = {"kernel_trloo": "eight"} | dict.fromkeys(("cpu_quickstart", "cpu_hard", "cpu_smollm2", "cpu_tools"), "none")
SIZES = ("one", "eight", "sixteen")
OURS = ("trloo", "rec", "topr", "ada")
"""Nodes of the estimators under `algorithm`."""
QWEN3_8B = {"hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36, "num_attention_heads": 32}


def resolved(recipe: str, *overrides: str) -> DictConfig:
    config = composed(recipe, *overrides)
    OmegaConf.resolve(config)
    return config


def options(config: DictConfig) -> Any:
    return parse_options(find(config, "kernelgym"))


def typed(node: DictConfig) -> Any:
    from verl.utils.config import omega_conf_to_dataclass

    return omega_conf_to_dataclass(node)


def check(config: DictConfig) -> None:
    """As verl's trainer does before anything else, and as a start of ours does."""
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    validate_config(config, need_reference_policy(config), need_critic(config))
    check_switches(config)
    check_mismatch(config)


@pytest.mark.parametrize("pair", one_of_each(product(RECIPES, MODES), key=lambda pair: pair[1]), ids="-".join)
def test_every_trainer_mode_gets_its_trainer_and_its_sampler(pair):
    from verl.trainer.ppo.v1 import get_trainer_cls
    from verl.utils.import_utils import load_extern_type

    recipe, mode = pair
    config = composed(recipe, f"trainer_mode={mode}")
    assert config.trainer.v1.trainer_mode == mode
    assert get_trainer_cls(mode).__name__.lower().endswith(mode.replace("_", ""))
    sampler = config.trainer.v1.sampler
    load_extern_type(sampler.custom_sampler.path, sampler.custom_sampler.name)(
        trainer_mode=mode, trainer_config=config.trainer.v1.get(mode, {}),
        max_off_policy_threshold=sampler.max_off_policy_threshold,
        max_off_policy_strategy=sampler.max_off_policy_strategy, sampler_kwargs=sampler.sampler_kwargs,
        refill_fn=lambda count: count,
    )  # fmt: skip


@pytest.mark.parametrize(("overrides", "bound"), [
    (["trainer_mode=sync"], "0.999"), (["trainer_mode=colocate_async"], "0.98"),
    (["trainer_mode=separate_async"], "0.98"), (["trainer_mode=colocate_async", "mismatch=mrs"], "0.999"),
    (["mismatch=mrs", "trainer_mode=colocate_async"], "0.999"),
])  # fmt: skip
def test_asynchronous_modes_choose_a_preset_for_stale_samples(overrides, bound):
    correction = composed("cpu_quickstart", *overrides).algorithm.rollout_correction
    assert correction.rollout_rs_threshold.startswith(bound)


@pytest.mark.parametrize(("recipe", "turns"), [("kernel_trloo", 3), ("cpu_quickstart", 2), ("cpu_smollm2", 1)])
def test_our_node_parses(recipe, turns):
    found = options(resolved(recipe))
    assert (found.rollout.max_turns, found.reward.scale) == (turns, 0.5)


@pytest.mark.parametrize("recipe", ["kernel_trloo", "cpu_quickstart", "drkernel_8b"])
def test_verls_discount_is_honoured(recipe):
    both = "algorithm.gamma=0.7", "algorithm.trloo.gamma=0.3"
    assert check_algorithm(composed(recipe, both[0]).algorithm).gamma == 0.7
    assert check_algorithm(composed(recipe, *both).algorithm).gamma == 0.3


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_checkpoint_can_be_read_without_the_plugin(recipe):
    """Its configuration holds the name of the attention, and transformers refuses a name that it does not know."""
    model = composed(recipe).actor_rollout_ref.model
    assert model.override_config.get("attn_implementation", "flash_attention_2") in ("sdpa", "flash_attention_2")


def test_the_recipe_of_a_real_model_fits_its_own_numbers():
    from recipes.cpu_smollm2.build import BATCH

    config, sft = resolved("cpu_smollm2"), composed("cpu_smollm2_sft")
    rollout = typed(config.actor_rollout_ref.rollout)
    assert rollout.max_model_len == config.data.max_prompt_length + config.data.max_response_length
    assert sft.data.train_batch_size == BATCH
    assert config.data.train_batch_size == typed(config.actor_rollout_ref.actor).ppo_mini_batch_size
    assert config.actor_rollout_ref.model.path == "outputs/smollm2/model"
    assert (sft.model.path, sft.data.train_files) == ("outputs/smollm2/base", "outputs/smollm2/corpus.parquet")
    assert sft.trainer.default_local_dir == "outputs/smollm2/sft"


@pytest.mark.parametrize("pair", one_of_each(product(SIZES, MODES), key=lambda pair: pair[0]), ids="-".join)
def test_verl_accepts_the_sizes(pair):
    size, mode = pair
    config = resolved("kernel_trloo", f"gpus={size}", f"trainer_mode={mode}")
    check(config)
    for node in ("actor", "rollout"):
        typed(config.actor_rollout_ref[node])


@pytest.mark.parametrize(("size", "trains", "judges"), [("one", 1, 0), ("eight", 4, 4), ("sixteen", 8, 8)])
def test_trainer_and_judges_share_the_gpus(size, trains, judges):
    config = resolved("kernel_trloo", f"gpus={size}")
    gym = options(config).env
    assert config.trainer.nnodes * config.trainer.n_gpus_per_node == trains
    assert gym.num_judges * gym.gpus_per_judge == judges
    assert gym.device == ("cuda" if judges else "cpu")


@pytest.mark.parametrize("size", SIZES)
def test_a_size_fits_its_context_and_needs_no_account(size):
    config = resolved("kernel_trloo", f"gpus={size}")
    longest = config.data.max_prompt_length + config.data.max_response_length
    node = config.actor_rollout_ref
    assert longest <= node.rollout.max_model_len
    assert longest <= node.actor.ppo_max_token_len_per_gpu
    assert (node.actor.use_dynamic_bsz, node.actor.ppo_micro_batch_size_per_gpu) == (False, 1)
    assert 0 < config.data.val_max_samples * node.rollout.val_kwargs.n * config.kernelgym.max_turns <= 192
    assert node.model.override_config.attn_implementation == "sdpa"
    assert node.actor.ulysses_sequence_parallel_size == 1
    assert list(config.trainer.logger) == ["console", "tensorboard", "file"]


@pytest.mark.parametrize("recipe", one_of_each(UNCHOSEN, UNCHOSEN.get))
def test_a_recipe_without_a_choice_is_for_no_gpu_or_for_8(recipe):
    assert composed(recipe) == composed(recipe, f"gpus={UNCHOSEN[recipe]}")


def test_no_gpus_are_no_keys():
    assert not OmegaConf.load(CONFIG / "gpus" / "none.yaml")


@pytest.mark.parametrize("recipe", ["drkernel_8b", "drkernel_14b"])
def test_the_published_recipe_fits_on_one_node(recipe):
    config = resolved(recipe, "gpus=eight")
    assert (config.trainer.n_gpus_per_node, config.kernelgym.num_judges) == (4, 8)
    assert config.trainer.n_gpus_per_node % config.actor_rollout_ref.actor.ulysses_sequence_parallel_size == 0


@pytest.fixture
def model(tmp_path):
    """A model's folder without weights: verl's model configuration reads config and tokenizer."""
    from transformers import Qwen3Config

    from verl_kernel.generated_tasks.tokenizer import train_tokenizer

    config = Qwen3Config(**QWEN3_8B, num_key_value_heads=8, head_dim=128, architectures=["Qwen3ForCausalLM"])
    config.save_pretrained(tmp_path)
    train_tokenizer(["x = x + 1"], 300).save_pretrained(tmp_path)
    return tmp_path


@pytest.mark.parametrize("pair", one_of_each(LARGE, key=lambda pair: pair[0]), ids="-".join)
def test_reinforcement_learning_passes_verls_checks_and_ours(pair, model):
    recipe, mode = pair
    config = resolved(recipe, f"trainer_mode={mode}", f"cold_start_model={model}")
    check(config)
    node = config.actor_rollout_ref
    actor, rollout, hub = (typed(node[key]) for key in ("actor", "rollout", "model"))
    # verl reads this node as it is; the class only knows its own keys.
    typed(DictConfig({key: value for key, value in config.algorithm.items() if key not in OURS}))
    assert (actor.clip_ratio_low, actor.clip_ratio_high, actor.clip_ratio_c) == (0.2, 0.28, 3.0)
    assert actor.engine.ulysses_sequence_parallel_size == 4
    assert actor.engine.param_offload
    assert (actor.optim.lr, actor.optim.lr_scheduler_type) == (1e-6, "constant")
    assert (rollout.n, rollout.val_kwargs.n, rollout.val_kwargs.top_p) == (16, 8, 0.95)
    assert hub.hf_config.num_hidden_layers == 36
    assert node.model.override_config.attn_implementation == "flash_attention_2"
    assert not node.model.use_fused_kernels
    assert options(config).env.float32 == "tf32"
    assert not list(check_judges(config, described("2x8xH100-80GB")))
    assert check_algorithm(config.algorithm).mask_void_turn
    sampler = PRSOptions.from_node(config.trainer.v1.sampler.sampler_kwargs)
    assert (sampler.group_filter, sampler.group_spread, sampler.group_carry_over) == ("refill", "last_turn", False)


def test_a_trajectory_fits_the_context_and_a_micro_batch():
    config = resolved("drkernel_8b")
    loop, actor, rollout = options(config).rollout, config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    longest = config.data.max_prompt_length + config.data.max_response_length
    assert longest <= rollout.max_model_len <= actor.ppo_max_token_len_per_gpu * actor.ulysses_sequence_parallel_size
    # Even at one token a character the feedback between the turns fits.
    answers, feedback = loop.max_turns * loop.turn_tokens, (loop.max_turns - 1) * loop.feedback_chars
    assert answers + feedback <= config.data.max_response_length


@pytest.mark.parametrize("recipe", thinned(["drkernel_8b_sft", "drkernel_14b_sft"]))
def test_the_cold_start_passes_verls_dataclasses(recipe, model):
    from verl.workers.engine_workers import TrainingWorkerConfig

    config = resolved(recipe, f"model.path={model}")
    parts = {key: typed(config[key]) for key in ("model", "engine", "optim", "checkpoint", "profiler")}
    TrainingWorkerConfig(
        model_type="language_model", model_config=parts["model"], engine_config=parts["engine"],
        optimizer_config=parts["optim"], checkpoint_config=parts["checkpoint"], profiler_config=parts["profiler"],
    )  # fmt: skip
    assert (parts["optim"].lr, parts["optim"].lr_scheduler_type) == (2e-5, "cosine")
    assert "hf_model" in parts["checkpoint"].save_contents
    shards = parts["engine"].ulysses_sequence_parallel_size
    assert config.data.max_token_len_per_gpu * shards >= config.data.max_length
    assert config.data.train_batch_size % (config.trainer.n_gpus_per_node // shards) == 0


def flat(config: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(config, DictConfig):
        config = OmegaConf.to_container(config)
    if not isinstance(config, dict):
        return {prefix: config}
    return {name: value for key in config for name, value in flat(config[key], f"{prefix}.{key}").items()}


@pytest.mark.parametrize("part", ["", "_sft"])
def test_14b_differs_from_8b_in_model_and_names_only(part):
    small, large = (flat(resolved(f"drkernel_{size}{part}")) for size in ("8b", "14b"))
    assert small.keys() == large.keys()
    differing = {key.split(".")[-1] for key in small if small[key] != large[key]}
    assert differing
    names = {"recipe_name", "experiment_name", "default_local_dir"}
    assert differing <= {"path", "served_model_name", "cold_start_model", *names}


def test_every_script_names_a_recipe_there_is():
    scripts = [*(Path(__file__).parents[2] / "recipes").glob("drkernel_*/*.sh")]
    assert len(scripts) == 4
    for script in scripts:
        name = script.read_text().split("--config-name=")[1].split()[0]
        assert name == script.parent.name + ("_sft" if script.stem == "run_sft" else "")
        assert composed(name)
