# SPDX-License-Identifier: Apache-2.0
"""Options: their generated files are current, every recipe holds every key, and a bad value is refused by name."""

import pytest
from omegaconf import OmegaConf

from tests.config.composed import composed
from verl_kernel.env.options import STRICT, GymOptions
from verl_kernel.errors import ConfigError
from verl_kernel.option_group import option_names
from verl_kernel.preflight.composing import compose
from verl_kernel.preflight.option_files import CONFIG, GYM, TRAINING, files, sentences
from verl_kernel.reward.options import KernelGymOptions, parse_options
from verl_kernel.verl_keys import find

KINDS = (*GYM, *TRAINING)


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
@pytest.mark.parametrize("recipe", [path.stem for path in CONFIG.glob("*.yaml") if "kernelgym:" in path.read_text()])
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
    ({"reward": {"only_this_size": 0.5}}, "set kernelgym.other_sizes=true"),
])  # fmt: skip
def test_a_bad_value_is_refused_by_name(node, sentence):
    with pytest.raises(ConfigError, match=sentence):
        parse_options(node)


def test_what_a_contradiction_asks_for_is_accepted():
    told = parse_options({"feedback": "profile", "device": "cuda", "prefilter": "cpu"})
    assert told.rollout.feedback == parse_options({"feedback": "profile"}).rollout.feedback == "profile"
    assert parse_options({"decoys": "record", "reward": {"pay_decoys": True}}).reward.pay_decoys
