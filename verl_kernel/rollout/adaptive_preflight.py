# SPDX-License-Identifier: Apache-2.0
"""Checks of a configuration that asks for Reinforce-Ada, before anything starts."""

from __future__ import annotations

from omegaconf import DictConfig

from verl_kernel.adaptive import AdaOptions
from verl_kernel.adaptive.options import NODE
from verl_kernel.errors import ConfigError
from verl_kernel.reward.judging import has_our_sampler
from verl_kernel.verl_keys import find, read

MANAGER = "verl_kernel.rollout.manager.KernelAgentLoopManager"
_MANAGER_KEY = "actor_rollout_ref.rollout.agent.agent_loop_manager_class"


def check_adaptive(config: DictConfig) -> None:
    """Check that `algorithm.ada` parses and fits the rest. The estimator `ada_est` alone, without budgets, is allowed.

    Raises:
        ConfigError: it does not parse or fit.
    """
    options = AdaOptions.from_node(find(config, NODE))
    estimator = read(config, "algorithm.adv_estimator")
    if estimator == "ada_seq" and not options.in_rounds:
        raise ConfigError(
            f"algorithm.adv_estimator is ada_seq and {NODE}.sampling is {options.sampling}, which leaves it no pools: "
            "choose method=ada_seq_pos or method=ada_seq_balance, or the estimator turn_grpo"
        )
    if options.sampling != "none":
        _check_surroundings(config, options)
        if options.in_rounds:
            _check_rounds(options, read(config, "actor_rollout_ref.rollout.n"))
            _check_pool_mean(config, options, estimator)
        else:
            _check_budgets(config, options)


def _check_surroundings(config: DictConfig, options: AdaOptions) -> None:
    if read(config, _MANAGER_KEY) != MANAGER:
        raise ConfigError(
            f"{NODE}.sampling is {options.sampling}, which {MANAGER} carries out: set {_MANAGER_KEY} to it, or "
            "sampling to none"
        )
    if not has_our_sampler(config):
        raise ConfigError(
            f"{NODE}.sampling is {options.sampling}, but trainer.v1.sampler.custom_sampler is not ours, which counts "
            "positives and reads pools: set its path to pkg://verl_kernel.sampler.prs, or sampling to none"
        )
    enabled, apart = (read(config, f"reward.reward_model.{key}") for key in ("enable", "enable_resource_pool"))
    if enabled and not apart:
        raise ConfigError(
            f"{NODE}.sampling is {options.sampling}, which needs rewards while rollouts are drawn, but the reward "
            "model shares the trainer's devices: set reward.reward_model.enable_resource_pool to true"
        )
    if read(config, "algorithm.adv_estimator") == "remax":
        raise ConfigError(
            f"algorithm.adv_estimator is remax and {NODE}.sampling is {options.sampling}: remax plays one greedy "
            "rollout a prompt of its own, so choose another estimator, or sampling=none"
        )


def _check_rounds(options: AdaOptions, n: int) -> None:
    options.exit_rule(n)
    if n < 2:
        raise ConfigError(f"actor_rollout_ref.rollout.n is {n}, but {options.sampling} keeps two classes: set it to 2")
    if options.round_size < n:
        raise ConfigError(
            f"{NODE}.round_size is {options.round_size} and actor_rollout_ref.rollout.n is {n}: a round draws at least "
            "what is trained on, so raise round_size"
        )


def _check_pool_mean(config: DictConfig, options: AdaOptions, estimator: str) -> None:
    if estimator == "ada_est":
        raise ConfigError(
            f"algorithm.adv_estimator is ada_est and {NODE}.sampling is {options.sampling}: the mean of chosen "
            "rollouts is no pass rate, so take ada_seq, or sampling=est"
        )
    if find(config, "trainer.v1.sampler.sampler_kwargs.group_filter") == "refill":
        raise ConfigError(
            f"{NODE}.sampling is {options.sampling} and the sampler's group_filter is refill, which throws away "
            "prompts that all rounds were spent on: set trainer.v1.sampler.sampler_kwargs.group_filter to none or drop"
        )
    if estimator == "ada_seq" and find(config, "algorithm.trloo.count_rejected") is False:
        raise ConfigError(
            "algorithm.trloo.count_rejected is false and the estimator is ada_seq, whose baseline is the whole pool, "
            "rejected turns included: set it to true"
        )


def _check_budgets(config: DictConfig, options: AdaOptions) -> None:
    n = read(config, "actor_rollout_ref.rollout.n")
    if not options.n_min <= n <= options.n_max:
        raise ConfigError(
            f"actor_rollout_ref.rollout.n is {n}, the mean of all budgets, but {NODE}.n_min is {options.n_min} and "
            f"n_max is {options.n_max}: let n lie between them"
        )
