# SPDX-License-Identifier: Apache-2.0
"""Switches of Reinforce-Ada, composed as a recipe composes them, and what contradicts them."""

import pytest
from omegaconf import DictConfig

from tests.config.composed import composed
from verl_kernel.adaptive import AdaOptions
from verl_kernel.errors import ConfigError
from verl_kernel.preflight.checks import RULES

METHODS = {"ada_est": "est", "ada_seq_pos": "seq_pos", "ada_seq_balance": "seq_balance"}
ROLLOUT = "actor_rollout_ref.rollout"
SAMPLER = "trainer.v1.sampler"


def check_adaptive(*overrides: str) -> DictConfig:
    config = composed("cpu_quickstart", *overrides)
    for rule in RULES:
        if rule.check.__name__ in ("check_adaptive", "check_positive"):
            rule.check(config)
    return config


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_each_method_is_one_switch(method):
    config = check_adaptive(f"method={method}")
    options = AdaOptions.from_node(config.algorithm.ada)
    assert options.sampling == METHODS[method]
    assert config.algorithm.adv_estimator == ("ada_est" if method == "ada_est" else "ada_seq")
    assert (options.positive, options.positive_from) == ("best_turn_speedup", 1)


@pytest.mark.parametrize(
    "overrides", [(), ("algorithm.adv_estimator=ada_est",), ("method=ada_seq_balance", "algorithm.adv_estimator=trloo")]
)
def test_the_recipe_alone_and_the_estimator_alone_are_allowed(overrides):
    check_adaptive(*overrides)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "override", "words"), [
    ("dr_kernel", "algorithm.adv_estimator=ada_seq", "leaves it no pools"),
    ("ada_est", f"{ROLLOUT}.agent.agent_loop_manager_class=null", "carries out"),
    ("ada_est", f"{SAMPLER}.custom_sampler.path=null", "reads pools"),
    ("ada_seq_pos", "reward.reward_model.enable=true", "needs rewards while rollouts are drawn"),
    ("ada_est", "algorithm.adv_estimator=remax", "one greedy rollout"),
    ("ada_est", f"{ROLLOUT}.n=64", "let n lie between them"),
    ("ada_seq_pos", f"{ROLLOUT}.n=1", "keeps two classes"),
    ("ada_seq_pos", "algorithm.ada.round_size=4", "raise round_size"),
    ("ada_seq_balance", "algorithm.ada.k_pos=30", "34 rollouts are asked for"),
    ("ada_seq_balance", "algorithm.adv_estimator=ada_est", "is no pass rate"),
    ("ada_seq_balance", f"{SAMPLER}.sampler_kwargs.group_filter=refill", "throws away prompts"),
    ("ada_seq_balance", "algorithm.trloo.count_rejected=false", "the whole pool"),
    ("ada_seq_pos", "algorithm.ada.positive=best_turn_speedups", r"best_turn_speedups'.*mean best_turn_speedup\?"),
    ("ada_est", "algorithm.ada.positive=speedup", "it must be one of acc, best_turn_acc"),
    ("ada_seq_balance", "algorithm.ada.sampling=balance", "must be one of none, est, seq_pos, seq_balance"),
])  # fmt: skip
def test_what_makes_no_sense_is_refused(method, override, words):
    with pytest.raises(ConfigError, match=words):
        check_adaptive(f"method={method}", override)


def test_what_is_positive_is_a_figure_of_the_loop_that_plays():
    single_turn = ("method=ada_seq_pos", f"{ROLLOUT}.agent.default_agent_loop=single_turn_agent")
    check_adaptive(*single_turn, "algorithm.ada.positive=speedup")
    with pytest.raises(ConfigError, match="it must be one of acc, speedup"):
        check_adaptive(*single_turn, "algorithm.ada.positive=best_turn_acc")
    for figure in ("speedup", "best_turn_acc"):
        check_adaptive(*single_turn, f"algorithm.ada.positive={figure}", "reward.reward_manager.name=naive")
