# SPDX-License-Identifier: Apache-2.0
"""What verl refuses once Ray and vLLM are there is refused before."""

import pytest
from hydra import compose, initialize_config_module
from omegaconf import DictConfig

from verl_kernel.errors import ConfigError
from verl_kernel.preflight.checks import check_verls_own

MICRO = "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8"
LOG_PROB = "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=8"


def config(*overrides: str, recipe: str = "kernel_trloo") -> DictConfig:
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose(recipe, overrides=list(overrides))


@pytest.mark.parametrize("recipe", ["kernel_trloo", "drkernel_8b", "cpu_quickstart"])
def test_the_recipes_pass(recipe: str, capsys):
    check_verls_own(config(recipe=recipe))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (("actor_rollout_ref.actor.use_dynamic_bsz=false",), "ppo_micro_batch_size"),
        (("actor_rollout_ref.actor.use_dynamic_bsz=false", MICRO), "log_prob_micro_batch_size"),
        (("actor_rollout_ref.actor.use_dynamic_bsz=false", MICRO, LOG_PROB, "data.train_batch_size=3"), "batch"),
        (("actor_rollout_ref.rollout.temperature=0",), "temperature"),
    ],
)
def test_verls_refusal_is_one_sentence(overrides: tuple[str, ...], said: str):
    with pytest.raises(ConfigError, match="^verl refuses this configuration: ") as caught:
        check_verls_own(config(*overrides))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_configuration_stays_as_it_is():
    given = config()
    before = given.copy()
    check_verls_own(given)
    assert given == before
