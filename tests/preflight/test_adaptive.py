# SPDX-License-Identifier: Apache-2.0
"""Switches of Reinforce-Ada, composed as a recipe composes them, and what contradicts them."""

from __future__ import annotations

import functools

import pytest
from hydra import compose, initialize_config_module
from omegaconf import DictConfig, OmegaConf

from verl_kernel.adaptive import AdaOptions
from verl_kernel.errors import ConfigError
from verl_kernel.preflight.checks import RULES

METHODS = {"ada_est": "est", "ada_seq_pos": "seq_pos", "ada_seq_balance": "seq_balance"}
SAMPLER = "trainer.v1.sampler"


@functools.cache
def composed(method: str | None) -> DictConfig:
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("cpu_quickstart", overrides=[f"method={method}"] if method else [])


def changed(method: str | None, *overrides: str) -> DictConfig:
    return OmegaConf.merge(composed(method), OmegaConf.from_dotlist(list(overrides)))


def check_adaptive(config: DictConfig) -> None:
    for rule in RULES:
        if rule.check.__name__ in ("check_adaptive", "check_positive"):
            rule.check(config)


@pytest.mark.parametrize("method", METHODS)
def test_each_method_is_one_switch(method: str) -> None:
    config = composed(method)
    options = AdaOptions.from_node(config.algorithm.ada)
    assert options.sampling == METHODS[method]
    assert config.algorithm.adv_estimator == ("ada_est" if method == "ada_est" else "ada_seq")
    assert options.positive == "best_turn_speedup"
    assert options.positive_from == 1
    check_adaptive(config)


def test_the_recipe_alone_and_the_estimator_alone_are_allowed() -> None:
    check_adaptive(composed(None))
    check_adaptive(changed(None, "algorithm.adv_estimator=ada_est"))
    check_adaptive(changed("ada_seq_balance", "algorithm.adv_estimator=trloo"))


@pytest.mark.parametrize(
    ("method", "override", "words"),
    [
        (None, "algorithm.adv_estimator=ada_seq", "leaves it no pools"),
        ("ada_est", "actor_rollout_ref.rollout.agent.agent_loop_manager_class=null", "carries out"),
        ("ada_est", f"{SAMPLER}.custom_sampler.path=null", "reads pools"),
        ("ada_seq_pos", "reward.reward_model.enable=true", "needs rewards while rollouts are drawn"),
        ("ada_est", "algorithm.adv_estimator=remax", "one greedy rollout"),
        ("ada_est", "actor_rollout_ref.rollout.n=64", "let n lie between them"),
        ("ada_seq_pos", "actor_rollout_ref.rollout.n=1", "keeps two classes"),
        ("ada_seq_pos", "algorithm.ada.round_size=4", "raise round_size"),
        ("ada_seq_balance", "algorithm.ada.k_pos=30", "34 rollouts are asked for"),
        ("ada_seq_balance", "algorithm.adv_estimator=ada_est", "is no pass rate"),
        ("ada_seq_balance", f"{SAMPLER}.sampler_kwargs.group_filter=refill", "throws away prompts"),
        ("ada_seq_balance", "algorithm.trloo.count_rejected=false", "the whole pool"),
        (
            "ada_seq_pos",
            "algorithm.ada.positive=best_turn_speedups",
            r"best_turn_speedups'.*did you mean best_turn_speedup\?",
        ),
        ("ada_est", "algorithm.ada.positive=speedup", "it must be one of acc, best_turn_acc"),
        ("ada_seq_balance", "algorithm.ada.sampling=balance", "must be one of none, est, seq_pos, seq_balance"),
    ],
)
def test_what_makes_no_sense_is_refused(method: str | None, override: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check_adaptive(changed(method, override))


@pytest.mark.parametrize(("positive", "known"), [("speedup", True), ("best_turn_acc", False)])
def test_what_is_positive_is_a_figure_of_the_loop_that_plays(positive: str, known: bool) -> None:
    loop = "actor_rollout_ref.rollout.agent.default_agent_loop=single_turn_agent"
    config = changed("ada_seq_pos", loop, f"algorithm.ada.positive={positive}")
    if known:
        check_adaptive(config)
    else:
        with pytest.raises(ConfigError, match="it must be one of acc, speedup"):
            check_adaptive(config)
    check_adaptive(OmegaConf.merge(config, {"reward": {"reward_manager": {"name": "naive"}}}))
