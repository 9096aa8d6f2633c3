# SPDX-License-Identifier: Apache-2.0
"""The generated files of options are current, and every key of ours can be set in every recipe without a plus."""

import pytest
from omegaconf import OmegaConf

from tests.config.composed import composed
from verl_kernel.env.options import STRICT, GymOptions
from verl_kernel.option_group import option_names
from verl_kernel.preflight.composing import compose
from verl_kernel.preflight.option_files import CONFIG, GYM, TRAINING, files, sentences
from verl_kernel.reward.options import KernelGymOptions, parse_options
from verl_kernel.verl_keys import find

KINDS = (*GYM, *TRAINING)
RECIPES = [path.stem for path in CONFIG.glob("*.yaml") if "kernelgym:" in path.read_text()]


@pytest.mark.parametrize("path", files(), ids=lambda path: path.stem)
def test_a_generated_file_is_current(path):
    assert path.read_text(encoding="utf-8") == files()[path], "make options writes it"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.NODE)
def test_every_key_has_a_sentence(kind):
    assert sorted(sentences(kind)) == sorted(option_names(kind))


def missing(*arguments: str) -> list[str]:
    """The keys of ours that a composed configuration does not hold."""
    config = composed(*arguments)
    keys = [f"{kind.NODE}.{name}" for kind in KINDS for name in option_names(kind)]
    nodes = {kind.NODE: OmegaConf.select(config, kind.NODE) for kind in KINDS}
    return [key for key in keys if key.rpartition(".")[2] not in nodes[key.rpartition(".")[0]]]


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_holds_every_key(recipe):
    assert missing(recipe) == []


def test_choices_keep_every_key():
    assert missing("kernel_trloo", "method=topr", "mismatch=turn_mrs", "gym=strict") == []


def test_a_key_can_be_set_without_a_plus_and_with_two():
    config = composed("kernel_trloo", "kernelgym.disk_mb=7", "++kernelgym.memory_checks=record")
    assert (config.kernelgym.disk_mb, config.kernelgym.memory_checks) == (7, "record")


def gym(*overrides: str) -> KernelGymOptions:
    config = composed("kernel_trloo", "kernelgym.num_judges=1", "gpus=none", *overrides)
    return parse_options(find(config, "kernelgym"))


def test_the_gym_of_training_has_the_defaults():
    assert gym() == KernelGymOptions()


def test_the_strict_gym_differs_by_what_the_commands_say():
    assert gym("gym=strict").env == GymOptions(**STRICT)


def test_a_recipe_of_ones_own_takes_the_gym_with_all_keys(tmp_path):
    (tmp_path / "mine.yaml").write_text("defaults: [ppo_trainer, gym: strict, _self_]\n")
    config = compose("mine", ["kernelgym.num_judges=3"], tmp_path)
    assert parse_options(find(config, "kernelgym")).env == GymOptions(**STRICT, num_judges=3)
