# SPDX-License-Identifier: Apache-2.0
import pytest

from verl_kernel.errors import ConfigError
from verl_kernel.reward.options import parse_options


def test_a_missing_node_means_the_defaults():
    assert parse_options(None) == parse_options({})
    options = parse_options(None)
    assert (options.rollout.max_turns, options.rollout.feedback, options.rollout.stop_token_ids) == (3, "short", ())
    assert (options.env.num_judges, options.env.timing) == (1, "device")


def test_keys_reach_their_owners():
    node = {"max_turns": 2, "feedback": "full", "stop_token_ids": [872, 5], "num_judges": 4, "timing": "kernelgym"}
    options = parse_options({**node, "device": "cpu", "reward": {"scale": 1.0}})
    assert (options.rollout.max_turns, options.rollout.feedback, options.rollout.stop_token_ids) == (
        2, "full", (872, 5),
    )  # fmt: skip
    assert (options.env.num_judges, options.env.timing, options.reward.scale) == (4, "kernelgym", 1.0)


@pytest.mark.parametrize(("node", "sentence"), [
    *[({"max_turns": turns}, "kernelgym.max_turns") for turns in (0, -1, 1.5, "two", True)],
    ({"feedback": "long"}, "kernelgym.feedback is .*short, full"),
    *[
        ({"stop_token_ids": ids}, "kernelgym.stop_token_ids is .*list of token ids")
        for ids in ("<|im_end|>", 872, [True], [-1])
    ],
    ({"timing": "cold"}, "kernelgym.timing is 'cold'; it must be one of device, latency, kernelgym"),
    ({"max_turn": 2}, "kernelgym.max_turn is not an option.*max_turns"),
    ({"reward": {"bonus": 1}}, "kernelgym.reward.bonus"),
    ({"device": "tpu"}, "kernelgym.device"),
    ({"num_judges": 0}, "kernelgym.num_judges"),
    ({"tolerance": "loose"}, "kernelgym.tolerance"),
    ({"float32": "bf16"}, "kernelgym.float32"),
    ({"decoys": "pay"}, "kernelgym.decoys"),
    ({"correctness_trials": 0}, "kernelgym.correctness_trials"),
    ({"load_timeout_s": 0}, "kernelgym.load_timeout_s"),
    # Two keys that contradict each other.
    ({"feedback": "profile", "device": "cuda"}, "kernelgym.feedback is 'profile'.*kernelgym.prefilter=cpu"),
    ({"reward": {"pay_decoys": True}}, "kernelgym.decoys=record"),
])  # fmt: skip
def test_a_bad_value_is_refused_by_name(node, sentence):
    with pytest.raises(ConfigError, match=sentence):
        parse_options(node)


def test_what_a_contradiction_asks_for_is_accepted():
    told = parse_options({"feedback": "profile", "device": "cuda", "prefilter": "cpu"})
    assert told.rollout.feedback == parse_options({"feedback": "profile"}).rollout.feedback == "profile"
    assert parse_options({"decoys": "record", "reward": {"pay_decoys": True}}).reward.pay_decoys
