# SPDX-License-Identifier: Apache-2.0
"""The recipes compose with verl's own configuration and pass its dataclasses."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import verl.trainer
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import ConfigCompositionException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from verl.trainer.ppo.v1 import get_trainer_cls
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.import_utils import load_extern_type

from recipes.cpu_smollm2.build import BATCH
from verl_kernel.advantage.options import check_algorithm
from verl_kernel.reward.options import parse_options
from verl_kernel.verl_keys import find


@pytest.fixture(autouse=True)
def hydra() -> Iterator[None]:
    with initialize_config_dir(str(Path(verl.trainer.__file__).parent / "config"), version_base=None):
        yield
    GlobalHydra.instance().clear()


def composed(recipe: str, *overrides: str) -> DictConfig:
    config = compose(recipe, overrides=list(overrides))
    OmegaConf.resolve(config.kernelgym)
    return config


@pytest.mark.parametrize("mode", ["sync", "colocate_async", "separate_async"])
@pytest.mark.parametrize("recipe", ["kernel_trloo", "cpu_quickstart", "cpu_smollm2"])
def test_every_trainer_mode_composes(recipe: str, mode: str):
    config = composed(recipe, f"trainer_mode={mode}")
    assert config.trainer.v1.trainer_mode == mode
    assert get_trainer_cls(mode).__name__.lower().endswith(mode.replace("_", ""))
    sampler = config.trainer.v1.sampler
    load_extern_type(sampler.custom_sampler.path, sampler.custom_sampler.name)(
        trainer_mode=mode,
        trainer_config=config.trainer.v1.get(mode, {}),
        max_off_policy_threshold=sampler.max_off_policy_threshold,
        max_off_policy_strategy=sampler.max_off_policy_strategy,
        sampler_kwargs=sampler.sampler_kwargs,
        refill_fn=lambda count: count,
    )


@pytest.mark.parametrize(
    ("overrides", "narrow"),
    [
        (["trainer_mode=sync"], True),
        (["trainer_mode=colocate_async"], False),
        (["trainer_mode=separate_async"], False),
        (["trainer_mode=colocate_async", "mismatch=mrs"], True),
        (["mismatch=mrs", "trainer_mode=colocate_async"], True),
    ],
)
def test_asynchronous_modes_choose_a_preset_for_stale_samples(overrides: list[str], narrow: bool):
    bounds = composed("cpu_quickstart", *overrides).algorithm.rollout_correction.rollout_rs_threshold
    assert bounds.startswith("0.999" if narrow else "0.98")


@pytest.mark.parametrize(("recipe", "turns"), [("kernel_trloo", 3), ("cpu_quickstart", 2), ("cpu_smollm2", 1)])
def test_our_node_parses(recipe: str, turns: int):
    options = parse_options(find(composed(recipe), "kernelgym"))
    assert options.rollout.max_turns == turns
    assert options.reward.scale == 0.5


@pytest.mark.parametrize("recipe", ["kernel_trloo", "cpu_quickstart", "drkernel_8b"])
def test_verls_discount_is_honoured(recipe: str):
    assert check_algorithm(composed(recipe, "algorithm.gamma=0.7").algorithm).gamma == 0.7
    assert check_algorithm(composed(recipe, "algorithm.gamma=0.7", "algorithm.trloo.gamma=0.3").algorithm).gamma == 0.3


def test_verl_accepts_the_actor_rollout_and_algorithm_nodes():
    config = composed("cpu_quickstart")
    OmegaConf.resolve(config)
    assert omega_conf_to_dataclass(config.actor_rollout_ref.actor).loss_agg_mode == "seq-mean-token-sum-norm"
    assert omega_conf_to_dataclass(config.actor_rollout_ref.rollout).n == 8
    assert config.algorithm.adv_estimator == "trloo"


def test_the_recipe_of_a_real_model_fits_its_own_numbers():
    config, sft = composed("cpu_smollm2"), compose("cpu_smollm2_sft")
    OmegaConf.resolve(config)
    rollout = omega_conf_to_dataclass(config.actor_rollout_ref.rollout)
    assert rollout.max_model_len == config.data.max_prompt_length + config.data.max_response_length
    assert sft.data.train_batch_size == BATCH
    assert config.data.train_batch_size == omega_conf_to_dataclass(config.actor_rollout_ref.actor).ppo_mini_batch_size
    assert config.actor_rollout_ref.model.path == "outputs/smollm2/model"
    assert (sft.model.path, sft.data.train_files) == ("outputs/smollm2/base", "outputs/smollm2/corpus.parquet")
    assert sft.trainer.default_local_dir == "outputs/smollm2/sft"


@pytest.mark.parametrize("estimator", ["grpo", "rloo", "turn_grpo", "trloo"])
def test_an_estimator_is_one_switch(estimator: str):
    assert composed("cpu_quickstart", f"algorithm.adv_estimator={estimator}").algorithm.adv_estimator == estimator


@pytest.mark.parametrize("preset", ["none", "mrs", "tis", "mrs_tis"])
def test_a_mismatch_preset_is_one_switch(preset: str):
    correction = composed("kernel_trloo", f"mismatch={preset}").algorithm.rollout_correction
    assert (correction.rollout_rs is not None) == preset.startswith("mrs")
    assert (correction.rollout_is is not None) == preset.endswith("tis")


def test_an_unknown_preset_is_refused_with_those_there_are():
    with pytest.raises((ConfigCompositionException, MissingConfigException), match="mrs_tis"):
        composed("kernel_trloo", "mismatch=mrz")


@pytest.mark.parametrize("recipe", ["kernel_trloo", "cpu_quickstart", "cpu_smollm2"])
def test_a_checkpoint_can_be_read_without_the_plugin(recipe: str):
    """Its configuration holds the name of the attention, and transformers refuses a name that it does not know."""
    model = composed(recipe).actor_rollout_ref.model
    assert model.override_config.get("attn_implementation", "flash_attention_2") in ("sdpa", "flash_attention_2")
