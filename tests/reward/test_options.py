# SPDX-License-Identifier: Apache-2.0
import pytest

from verl_kernel.errors import ConfigError
from verl_kernel.reward.options import parse_options


def test_a_missing_node_means_the_defaults():
    assert parse_options(None).rollout.max_turns == 3
    assert parse_options({}).env.num_judges == 1


def test_keys_reach_their_owners():
    options = parse_options({"max_turns": 2, "num_judges": 4, "reward": {"scale": 1.0}})
    assert (options.rollout.max_turns, options.env.num_judges, options.reward.scale) == (2, 4, 1.0)


@pytest.mark.parametrize("turns", [0, -1, 1.5, "two", True])
def test_an_unplayable_number_of_turns_is_refused(turns):
    with pytest.raises(ConfigError, match="kernelgym.max_turns"):
        parse_options({"max_turns": turns})


def test_what_ends_and_follows_a_turn():
    options = parse_options({"feedback": "full", "stop_token_ids": [872, 5]}).rollout
    assert (options.feedback, options.stop_token_ids) == ("full", (872, 5))
    assert (parse_options(None).rollout.feedback, parse_options(None).rollout.stop_token_ids) == ("short", ())


@pytest.mark.parametrize(
    ("key", "value", "remedy"),
    [
        ("feedback", "long", "short, full"),
        ("stop_token_ids", "<|im_end|>", "list of token ids"),
        ("stop_token_ids", 872, "list of token ids"),
        ("stop_token_ids", [True], "list of token ids"),
        ("stop_token_ids", [-1], "list of token ids"),
    ],
)
def test_bad_ends_and_forms_are_refused_by_name(key, value, remedy):
    with pytest.raises(ConfigError, match=f"kernelgym.{key} is .*{remedy}"):
        parse_options({key: value})


def test_which_time_counts_is_one_of_three():
    assert parse_options(None).env.timing == "device"
    assert parse_options({"timing": "kernelgym", "device": "cpu"}).env.timing == "kernelgym"
    with pytest.raises(ConfigError, match="kernelgym.timing is 'cold'; it must be one of device, latency, kernelgym"):
        parse_options({"timing": "cold"})


def test_an_unknown_key_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"kernelgym.max_turn is not an option.*max_turns"):
        parse_options({"max_turn": 2})
    with pytest.raises(ConfigError, match="kernelgym.reward.bonus"):
        parse_options({"reward": {"bonus": 1}})


def test_profiles_on_a_gpu_need_workers_that_count():
    with pytest.raises(ConfigError, match="kernelgym.feedback is 'profile'.*kernelgym.prefilter=cpu"):
        parse_options({"feedback": "profile", "device": "cuda"})
    told = parse_options({"feedback": "profile", "device": "cuda", "prefilter": "cpu"})
    assert told.rollout.feedback == parse_options({"feedback": "profile"}).rollout.feedback == "profile"


def test_decoys_that_are_paid_must_be_recorded():
    with pytest.raises(ConfigError, match="kernelgym.decoys=record"):
        parse_options({"reward": {"pay_decoys": True}})
    assert parse_options({"decoys": "record", "reward": {"pay_decoys": True}}).reward.pay_decoys


@pytest.mark.parametrize(
    "node",
    [
        {"device": "tpu"},
        {"num_judges": 0},
        {"tolerance": "loose"},
        {"float32": "bf16"},
        {"decoys": "pay"},
        {"correctness_trials": 0},
        {"load_timeout_s": 0},
    ],
)
def test_a_value_out_of_range_is_refused_by_name(node):
    with pytest.raises(ConfigError, match=f"kernelgym.{next(iter(node))}"):
        parse_options(node)
