# SPDX-License-Identifier: Apache-2.0
"""Whether the losses for off-policy data get the policy they compare with, and their options the loss they are for."""

from __future__ import annotations

import logging
from collections.abc import Collection
from types import SimpleNamespace

from omegaconf import DictConfig

from verl_kernel.errors import ConfigError
from verl_kernel.loss.rec import with_eps
from verl_kernel.loss.rec_options import CUSTOM, MODE, PRESETS, RecOptions, compares, options_of
from verl_kernel.loss.rec_options import NODE as REC
from verl_kernel.loss.staleness import CORRECTION, cause_of_staleness
from verl_kernel.loss.topr_options import NODE as NODE_OF_TOPR
from verl_kernel.loss.topr_options import TOPR, ToprOptions
from verl_kernel.option_group import OptionGroup
from verl_kernel.verl_keys import find, read

logger = logging.getLogger(__name__)
_ACTOR = "actor_rollout_ref.actor"
TARGET = "actor_rollout_ref.actor.policy_loss._target_"
CLASS = "verl_kernel.loss.config.KernelPolicyLossConfig"
REMEDY = f"set {CORRECTION}.bypass_mode=true and no other correction, as mismatch=bypass does"


def check_off_policy(config: DictConfig) -> None:
    """Options belong to the chosen loss and parse, and `old_log_prob` is the policy that the loss needs.

    Raises:
        ConfigError: they do not; the message names the key and the remedy.
    """
    mode = read(config, MODE)
    _check_node(config, RecOptions, mode, PRESETS, CUSTOM)
    _check_node(config, ToprOptions, mode, [TOPR], TOPR)
    if mode == TOPR:
        _check_topr(config)
    if mode in PRESETS:
        options = with_eps(options_of(mode, find(config, REC)), SimpleNamespace(**_clip_range(config)))
        if compares(options):
            _check_rec(config, mode)
        if options.regulariser in ("k2", "k2_sequence"):
            _warn_of_no_pull(config, mode)


def unread(node: str, mode: str, reader: str) -> ConfigError:
    """The error for options of a loss that is not chosen, `reader`; most often two presets choose one each."""
    return ConfigError(
        f"{node} is set and {MODE} is {mode}, which does not read it: where a method=... and mismatch=turn_mrs (or "
        "turn_tis) choose a loss each, keep one, with mismatch=bypass or with method=dr_kernel; otherwise set the loss "
        f"to {reader}, or remove the node (on the command line with ~{node})"
    )


def _check_node(config: DictConfig, kind: type[OptionGroup], mode: str, readers: Collection[str], reader: str) -> None:
    if not kind.is_set(find(config, kind.NODE)):
        return
    if mode not in readers:
        raise unread(kind.NODE, mode, reader)
    if read(config, TARGET) != CLASS:
        raise ConfigError(f"{kind.NODE} is set and {TARGET} is a class that does not know it: set it to {CLASS}")


def _check_topr(config: DictConfig) -> None:
    ToprOptions.from_node(find(config, NODE_OF_TOPR))
    if not _bypassed(config):
        raise ConfigError(
            f"{CORRECTION}.bypass_mode is not true and {MODE} is {TOPR}, which weighs answers by the policy that "
            f"generated them: {REMEDY}"
        )


def _check_rec(config: DictConfig, mode: str) -> None:
    """On fresh samples the trainer's own old_log_prob is as good; on older ones it hides how far the policy went."""
    cause = cause_of_staleness(config)
    if cause is not None and not _bypassed(config):
        raise ConfigError(
            f"{CORRECTION}.bypass_mode is not true, {MODE} is {mode}, and {cause}: samples of older weights would be "
            f"compared with the newest ones instead of those that generated them, so {REMEDY}"
        )


def _warn_of_no_pull(config: DictConfig, mode: str) -> None:
    """Old log-probabilities that the trainer makes itself are those of its first update: the ratio is 1 there."""
    batch, mini, epochs = (
        read(config, key) for key in ("data.train_batch_size", f"{_ACTOR}.ppo_mini_batch_size", f"{_ACTOR}.ppo_epochs")
    )
    if not _bypassed(config) and cause_of_staleness(config) is None and batch <= mini and epochs == 1:
        logger.warning(
            "%s is %s, whose pull towards the old policy is 0 here: a batch is one mini-batch (%s.ppo_mini_batch_size "
            "is %s), so every ratio is 1; set mismatch=bypass, or make mini-batches smaller",
            *(MODE, mode, _ACTOR, mini),
        )


def _clip_range(config: DictConfig) -> dict[str, float | None]:
    return {key: find(config, f"{_ACTOR}.{key}") for key in ("clip_ratio", "clip_ratio_low", "clip_ratio_high")}


def _bypassed(config: DictConfig) -> bool:
    return bool(read(config, f"{CORRECTION}.bypass_mode"))
