# SPDX-License-Identifier: Apache-2.0
"""Checks of a configuration that selects our sampler, before anything starts."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow.parquet as pq
from omegaconf import DictConfig

from verl_kernel.errors import ConfigError
from verl_kernel.sampler.options import NODE, PRSOptions
from verl_kernel.verl_keys import find, read
from verl_kernel.verl_names import AGENT_LOOP

_DEFAULT_AGENT = "actor_rollout_ref.rollout.agent.default_agent_loop"


def check_switches(config: DictConfig) -> None:
    """Refuse a bad node of the sampler, and settings elsewhere that contradict it.

    Raises:
        ConfigError: the node is bad, or a switch of verl's would be ignored or break the filter.
    """
    options = _options(config)
    for key in ("algorithm.filter_groups.enable", "trainer.v1.sampler.sync_refill_failed_groups"):
        if read(config, key):
            raise ConfigError(
                f"{key} is true, which verl reads for its own samplers only: set it to false "
                f"({NODE}.group_filter=refill replaces prompts whose rollouts all earned the same)"
            )
    is_enabled, is_apart = (read(config, f"reward.reward_model.{key}") for key in ("enable", "enable_resource_pool"))
    if is_enabled and not is_apart and read(config, _DEFAULT_AGENT) == AGENT_LOOP:
        raise ConfigError(
            "reward.reward_model.enable is true and reward.reward_model.enable_resource_pool is false, so verl would "
            "overwrite the rewards of all turns by those of a reward model, after sampling: set enable to false"
        )
    if options.group_filter != "none" and read(config, "actor_rollout_ref.rollout.n") == 1:
        raise ConfigError(
            f"{NODE}.group_filter is {options.group_filter} and actor_rollout_ref.rollout.n is 1, where no prompt has "
            "rollouts to compare: raise n, or set group_filter to none"
        )
    mode, chunk = (read(config, key) for key in ("trainer.v1.trainer_mode", "data.gen_batch_size"))
    if options.group_filter == "refill" and mode == "sync" and chunk != 1:
        raise ConfigError(
            f"data.gen_batch_size is {chunk} and {NODE}.group_filter is refill, which replaces prompts one by one: "
            "set data.gen_batch_size to 1"
        )
    if options.group_carry_over and (options.group_filter != "refill" or mode != "sync"):
        raise ConfigError(
            f"{NODE}.group_carry_over is true, group_filter is {options.group_filter} and trainer_mode is {mode}: only "
            "group_filter=refill in sync throws prompts away that could be kept; set it to false"
        )


def check_coverage(config: DictConfig, train_files: Sequence[str]) -> None:
    """Check that rejection gets rollouts whose coverage is measured.

    Args:
        config: the composed configuration.
        train_files: datasets, which exist.

    Raises:
        ConfigError: rejection is on and every training row goes to an agent loop other than ours.
    """
    default = read(config, _DEFAULT_AGENT)
    if (
        _options(config).enabled
        and train_files
        and not any(AGENT_LOOP in agents(path, default) for path in train_files)
    ):
        raise ConfigError(
            f"{NODE}.enabled is true, but no row of data.train_files is played by {AGENT_LOOP}, the loop that measures "
            f"coverage: set {_DEFAULT_AGENT} to {AGENT_LOOP} (a row's agent_name wins), or enabled to false"
        )


def _options(config: DictConfig) -> PRSOptions:
    return PRSOptions.from_node(find(config, NODE))


def agents(path: str, default: str) -> set[str]:
    """Return the agent loops that play the rows of an existing dataset file; `default` plays those that name none."""
    if "agent_name" not in pq.read_schema(path).names:
        return {default}
    return {name or default for name in pq.read_table(path, columns=["agent_name"])["agent_name"].to_pylist()}
