# SPDX-License-Identifier: Apache-2.0
"""What options of several parts may say, and what is refused in one sentence."""

from dataclasses import replace

import pytest
import yaml
from omegaconf import OmegaConf

from verl_kernel.env.options import GymOptions
from verl_kernel.errors import ConfigError
from verl_kernel.reward.options import parse_options
from verl_kernel.verl_keys import find


def test_nothing_asked_for_is_no_resource():
    assert GymOptions().judge_resources == GymOptions(judge_resources={}).judge_resources == ()


def test_resources_are_pairs_of_name_and_amount():
    options = parse_options({"num_judges": 3, "judge_resources": {"a": 1, "accelerator_type:H100": 0.001}}).env
    assert options.judge_resources == (("a", 1.0), ("accelerator_type:H100", 0.001))
    assert hash(options) == hash(replace(options))
    assert replace(options) == options


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (3, ["is 3", "mapping of Ray resources"]),
        ("rack_a", ["is 'rack_a'", "mapping of Ray resources"]),
        ({"GPU": 1}, ["names GPU", "kernelgym.gpus_per_judge"]),
        ({"CPU": 1}, ["names CPU", "kernelgym.cpus_per_judge"]),
        ({"": 1}, ["names the resource ''"]),
        ({7: 1}, ["names the resource 7"]),
        ({"a": 0}, ["0 of a", "at least 0.0001"]),
        ({"a": -1}, ["-1 of a"]),
        ({"a": 1.5}, ["1.5 of a", "whole"]),
        ({"a": True}, ["True of a"]),
        ({"a": "1"}, ["'1' of a"]),
        ({"a": float("nan")}, ["nan of a"]),
        ([{"resources": {"a": 1}, "num_judges": 1}], ["must be a mapping"]),
    ],
)
def test_what_cannot_be_is_one_sentence_that_names_the_key(value, words):
    with pytest.raises(ConfigError) as caught:
        GymOptions(judge_resources=value)
    sentence = str(caught.value)
    assert "kernelgym.judge_resources" in sentence
    assert "\n" not in sentence
    assert all(word in sentence for word in words), sentence


@pytest.mark.parametrize(
    ("written", "targets"),
    [
        ("'off'", ()),
        ("sm_90", ("sm_90",)),
        ("gfx942", ("gfx942",)),
        ("[gfx942, sm_90]", ("gfx942", "sm_90")),
        ("[gfx1100]", ("gfx1100",)),
    ],
)
def test_targets_are_named_by_a_word_or_a_list(written, targets):
    assert GymOptions(compile_for=yaml.safe_load(written)).targets == targets


def test_a_recipe_takes_a_list():
    config = OmegaConf.create("kernelgym: {compile_for: [sm_90, gfx942]}")
    assert parse_options(find(config, "kernelgym")).env == GymOptions(compile_for=("sm_90", "gfx942"))


def test_a_list_of_one_is_the_plain_name():
    assert GymOptions(compile_for=["sm_90"]) == GymOptions(compile_for="sm_90")


@pytest.mark.parametrize("gpu_profile", ["mi300x", "mi355x"])
@pytest.mark.parametrize("mode", ["compile", "best"])
def test_compiled_references_are_not_timed_for_amd(gpu_profile, mode):
    with pytest.raises(ConfigError, match=f"reference_mode is '{mode}' and kernelgym.gpu_profile is '{gpu_profile}'"):
        GymOptions(reference_mode=mode, gpu_profile=gpu_profile)
    assert GymOptions(gpu_profile=gpu_profile).reference_mode == "eager"


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("gfx90", "kernelgym.compile_for is 'gfx90'; did you mean gfx950? it must be one of off, sm_80, "),
        (["sm_90", "gfx94"], "kernelgym.compile_for is ['sm_90', 'gfx94']; did you mean gfx942? it must be one of off"),
        (["sm_90", "off"], "kernelgym.compile_for is ['sm_90', 'off']; it must be one of off, sm_80, "),
        ([], "kernelgym.compile_for is []; name each target once: it must be one of off, sm_80, "),
        (["sm_90", "sm_90"], "kernelgym.compile_for is ['sm_90', 'sm_90']; name each target once: "),
        (False, "kernelgym.compile_for is false; it must be one of off, sm_80, "),
    ],
)
def test_what_is_no_target_is_refused_with_the_names(value, sentence):
    with pytest.raises(ConfigError) as caught:
        GymOptions(compile_for=value)
    assert str(caught.value).startswith(sentence)
    assert str(caught.value).endswith("gfx942, gfx950, gfx1100, or a list of targets, as in [sm_90, gfx942]")
