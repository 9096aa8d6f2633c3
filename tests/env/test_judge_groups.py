# SPDX-License-Identifier: Apache-2.0
"""What `kernelgym.judge_resources` may say."""

from dataclasses import replace

import pytest

from verl_kernel.env.judge_groups import JudgeGroup
from verl_kernel.env.options import GymOptions
from verl_kernel.errors import ConfigError
from verl_kernel.reward.options import parse_options

TWO = [
    {"resources": {"a": 1}, "num_judges": 2},
    {"resources": {"b": 0.5, "accelerator_type:H100": 0.001}, "num_judges": 1},
]


def test_nothing_asked_for_is_no_group():
    assert GymOptions().judge_resources == GymOptions(judge_resources={}).judge_resources == ()


def test_a_mapping_is_one_group_of_all_judges():
    options = GymOptions(num_judges=3, judge_resources={"a": 1, "accelerator_type:H100": 0.001})
    assert options.judge_resources == (JudgeGroup((("a", 1.0), ("accelerator_type:H100", 0.001))),)
    assert replace(options, num_judges=7).judge_resources == options.judge_resources


def test_groups_have_numbers_and_names():
    options = parse_options({"num_judges": 3, "judge_resources": TWO}).env
    assert [(group.name, group.num_judges) for group in options.judge_resources] == [
        ("a", 2),
        ("accelerator_type:H100+b", 1),
    ]
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
        ([{"resources": {"a": 1}}], ["keys resources and num_judges"]),
        ([{"resources": {"a": 1}, "num_judges": 1, "gpus": 1}], ["keys resources and num_judges"]),
        ([{"resources": {}, "num_judges": 1}], ["keys resources and num_judges"]),
        ([{"resources": ["a"], "num_judges": 1}], ["must be a mapping"]),
        (["a"], ["keys resources and num_judges"]),
        ([{"resources": {"a": 1}, "num_judges": 0}], ["num_judges is 0", "at least 1"]),
        ([{"resources": {"a": 1}, "num_judges": True}], ["num_judges is True"]),
        (TWO, ["kernelgym.num_judges is 1", "have 3 judges", "set kernelgym.num_judges to 3"]),
    ],
)
def test_what_cannot_be_is_one_sentence_that_names_the_key(value, words):
    with pytest.raises(ConfigError) as caught:
        GymOptions(judge_resources=value)
    sentence = str(caught.value)
    assert "kernelgym.judge_resources" in sentence
    assert "\n" not in sentence
    assert all(word in sentence for word in words), sentence


def test_a_wait_is_no_less_than_nothing():
    with pytest.raises(ConfigError, match="kernelgym.model_wait_s is -1"):
        GymOptions(model_wait_s=-1)
