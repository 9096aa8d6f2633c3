# SPDX-License-Identifier: Apache-2.0
"""What is refused at the start about losses for off-policy data, composed as a recipe composes it."""

from __future__ import annotations

import functools
import re
from typing import Any

import pytest
from hydra import compose, initialize_config_module
from omegaconf import DictConfig, OmegaConf
from verl.utils.config import omega_conf_to_dataclass

from tests.loss.cases import OURS
from verl_kernel.errors import ConfigError
from verl_kernel.loss.config import KernelPolicyLossConfig
from verl_kernel.loss.options import PRESETS, ToprOptions
from verl_kernel.loss.preflight import CLASS, check_mismatch, check_off_policy

ACTOR = "actor_rollout_ref.actor"
LOSS = f"{ACTOR}.policy_loss"
CORRECTION = "algorithm.rollout_correction"
COMPARING = ["rec_one_side_is", "rec_one_side_no_is", "rec_two_side_is", "rec_two_side_no_is", "rec_ring"]
COMPARING += ["rec_gspo_is", "rec_gspo_no_is", "opmd_k2", "opmd_k2_sequence"]


@pytest.fixture(scope="module")
def recipes() -> dict[str, DictConfig]:
    """The recipe with a preset of mismatch correction, by its name; `async` is stale_tis with colocate_async."""
    chosen = {"mrs": "mismatch=mrs", "stale_clip": "mismatch=stale_clip", "async": "trainer_mode=colocate_async"}
    micro = "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1"
    with initialize_config_module("verl.trainer.config", version_base=None):
        return {name: compose("kernel_trloo", overrides=[micro, override]) for name, override in chosen.items()}


def with_loss(config: DictConfig, mode: str, **nodes: Any) -> DictConfig:
    config = config.copy()
    OmegaConf.set_struct(config, False)
    config.actor_rollout_ref.actor.policy_loss.update({"loss_mode": mode, "_target_": CLASS, **nodes})
    return config


def bypassed(config: DictConfig) -> DictConfig:
    config = config.copy()
    config.algorithm.rollout_correction.update({"bypass_mode": True, "rollout_is": None, "rollout_rs": None})
    return config


@pytest.mark.parametrize("mode", OURS)
def test_every_loss_passes_with_the_policy_that_generated(recipes: dict[str, DictConfig], mode: str) -> None:
    check_mismatch(with_loss(recipes["stale_clip"], mode))
    check_mismatch(with_loss(bypassed(recipes["async"]), mode))


@pytest.mark.parametrize("mode", PRESETS)
def test_fresh_samples_need_no_bypass(recipes: dict[str, DictConfig], mode: str) -> None:
    check_mismatch(with_loss(recipes["mrs"], mode))


@pytest.mark.parametrize("name", ["mrs", "async"])
def test_topr_without_the_policy_that_generated_is_refused(recipes: dict[str, DictConfig], name: str) -> None:
    with pytest.raises(ConfigError, match=f"{CORRECTION}.bypass_mode is not true.*mismatch=bypass"):
        check_mismatch(with_loss(recipes[name], "topr_taper"))


@pytest.mark.parametrize("mode", PRESETS)
def test_older_samples_are_refused_where_age_is_unseen(recipes: dict[str, DictConfig], mode: str) -> None:
    config = with_loss(recipes["async"], mode)
    if mode not in COMPARING:
        return check_mismatch(config)
    with pytest.raises(ConfigError, match=f"loss_mode is {mode}.*num_warmup_batches.*bypass_mode=true"):
        check_mismatch(config)


def test_a_custom_loss_is_judged_by_its_options(recipes: dict[str, DictConfig]) -> None:
    check_off_policy(with_loss(recipes["async"], "rec_custom", rec={"regulariser": "forward_kl"}))
    with pytest.raises(ConfigError, match="rec_custom.*bypass_mode=true"):
        check_off_policy(with_loss(recipes["async"], "rec_custom", rec={"weights": "is"}))


def test_two_sets_of_correction_weights_are_refused(recipes: dict[str, DictConfig]) -> None:
    config = with_loss(recipes["stale_clip"], "topr_taper")
    config.algorithm.rollout_correction.rollout_is = "token"
    with pytest.raises(ConfigError, match="bypass_mode is true.*rollout_is"):
        check_mismatch(config)


@pytest.mark.parametrize(
    ("mode", "nodes", "key", "remedy"),
    [
        ("vanilla", {"rec": {"eps_low": 0.1}}, f"{LOSS}.rec is set", "rec_custom"),
        ("rec_ring", {"topr": {"neg_low": 0.1}}, f"{LOSS}.topr is set", "topr_taper"),
        ("topr_taper", {"rec": {"eps_low": 0.1}}, f"{LOSS}.rec is set", "remove the node"),
        ("rec_ring", {"turn_correction": {"low": 0.9}}, f"{LOSS}.turn_correction is set", "turn_corrected"),
        ("rec_ring", {"rec": {"eps_low": 0.1}, "_target_": "verl.workers.config.PolicyLossConfig"}, "_target_", CLASS),
        ("rec_ring", {"rec": {"clip": "none"}}, f"{LOSS}.rec.clip", "rec_custom"),
        ("topr_taper", {"topr": {"ratio": "row"}}, f"{LOSS}.topr.ratio", "geometric"),
    ],
)
def test_options_for_another_loss_or_class_are_refused(
    recipes: dict[str, DictConfig], mode: str, nodes: dict[str, Any], key: str, remedy: str
) -> None:
    with pytest.raises(ConfigError) as error:
        check_mismatch(with_loss(recipes["stale_clip"], mode, **nodes))
    assert key in str(error.value)
    assert remedy in str(error.value)
    assert "\n" not in str(error.value)


@functools.cache
def composed(*overrides: str) -> DictConfig:
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("cpu_quickstart", overrides=list(overrides))


WITH_A_NODE = ("topr", "asymre_kl", "opmd", "opmd_k2", "red_weight", "rec_ring", "rec_gspo_is", "rec_one_side_is")


@pytest.mark.parametrize("mismatch", ["turn_mrs", "turn_tis"])
@pytest.mark.parametrize("method", WITH_A_NODE)
def test_two_presets_with_losses_are_refused(method: str, mismatch: str) -> None:
    ways = ("mismatch=bypass", "method=dr_kernel")
    with pytest.raises(ConfigError) as error:
        check_mismatch(composed(f"method={method}", f"mismatch={mismatch}"))
    assert all(way in str(error.value) for way in ways)
    assert "\n" not in str(error.value)
    check_mismatch(composed(f"method={method}", ways[0]))
    check_mismatch(composed(ways[1], f"mismatch={mismatch}"))


def test_another_losses_node_can_be_removed_as_told() -> None:
    turns = ("mismatch=turn_mrs", f"{LOSS}.loss_mode=vanilla")
    with pytest.raises(ConfigError, match=re.escape(f"remove the node (on the command line with ~{LOSS}.turn_cor")):
        check_mismatch(composed(*turns))
    check_mismatch(composed(*turns, f"~{LOSS}.turn_correction"))


@pytest.mark.parametrize(
    ("overrides", "warns"),
    [
        (("method=opmd_k2", "mismatch=none"), True),
        (("method=opmd_k2", "mismatch=none", f"{LOSS}.loss_mode=opmd_k2_sequence"), True),
        (("method=opmd_k2", "mismatch=none", "actor_rollout_ref.actor.ppo_mini_batch_size=2"), False),
        (("method=opmd_k2", "mismatch=none", "actor_rollout_ref.actor.ppo_epochs=2"), False),
        (("method=opmd_k2",), False),
        (("method=rec_ring", "mismatch=none"), False),
    ],
)
def test_a_pull_towards_the_policy_itself_is_warned_of(
    caplog: pytest.LogCaptureFixture, overrides: tuple[str, ...], warns: bool
) -> None:
    check_mismatch(composed(*overrides))
    assert ("pull towards the old policy is 0" in caplog.text) is warns


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"rollout_rs": "geometric"}, "Invalid rollout_rs option: geometric"),
        ({"rollout_rs_threshold": "abc"}, "could not convert string to float"),
        ({"rollout_rs_threshold": None}, "must be explicitly provided"),
        ({"rollout_rs_threshold": "1.1,2,3"}, "one threshold shared by all options or exactly 2"),
        ({"rollout_rs": ""}, "at least one valid option"),
        ({"rollout_is": "token", "rollout_is_threshold": -1.0}, "must be positive"),
        ({"rollout_is": "token", "rollout_is_threshold": "2_1"}, "must be <= upper bound"),
    ],
)
def test_a_rule_that_verl_refuses_is_refused_first(rule: dict[str, Any], words: str) -> None:
    config = composed("mismatch=mrs").copy()
    config.algorithm.rollout_correction.update(rule)
    with pytest.raises(ConfigError) as error:
        check_mismatch(config)
    sentence = str(error.value)
    assert sentence.startswith("algorithm.rollout_correction.rollout_")
    assert words in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        ((f"{LOSS}.rec.eps_low_prime=0.1",), f"{LOSS}.rec.eps_low_prime is 0.1 and eps_low is 0.2"),
        ((f"{LOSS}.rec.eps_high_prime=0",), f"{LOSS}.rec.eps_high_prime is 0.0 and eps_high is 0.2"),
        ((f"{LOSS}.rec.eps_low=0.7",), f"{LOSS}.rec.eps_low_prime is 0.6 and eps_low is 0.7"),
        (
            (f"{LOSS}.rec.eps_low=null", f"{ACTOR}.clip_ratio_low=0.7"),
            f"{LOSS}.rec.eps_low_prime is 0.6 and eps_low is 0.7",
        ),
        (
            (f"{LOSS}.rec.eps_low=null", f"{ACTOR}.clip_ratio_low=1.5"),
            f"{ACTOR}.clip_ratio_low is 1.5; it must be a number",
        ),
    ],
)
def test_a_ring_has_its_outer_edge_beyond_its_inner_one(overrides: tuple[str, ...], key: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(key)):
        check_mismatch(composed("method=rec_ring", *overrides))


def test_empty_nodes_are_no_options(recipes: dict[str, DictConfig]) -> None:
    check_mismatch(with_loss(recipes["stale_clip"], "vanilla", rec={}, topr=None, turn_correction={}))


def test_the_node_reaches_the_loss_as_its_class(recipes: dict[str, DictConfig]) -> None:
    config = with_loss(recipes["stale_clip"], "rec_custom", rec={"clip": "ring", "eps_low": 0.3})
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    assert isinstance(actor.policy_loss, KernelPolicyLossConfig)
    assert dict(actor.policy_loss.rec) == {"clip": "ring", "eps_low": 0.3}
    assert actor.policy_loss.topr == ToprOptions.in_recipes()
