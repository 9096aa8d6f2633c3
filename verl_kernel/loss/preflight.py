# SPDX-License-Identifier: Apache-2.0
"""Whether the switches of mismatch correction and policy loss fit each other, asked before anything starts."""

from __future__ import annotations

import math

from omegaconf import DictConfig

from verl_kernel.errors import ConfigError
from verl_kernel.loss.off_policy import check_off_policy, unread
from verl_kernel.loss.options import NODE, TurnCorrectionOptions
from verl_kernel.loss.staleness import CORRECTION, check_staleness
from verl_kernel.option_group import in_words
from verl_kernel.verl_keys import find, read

UNCUT = math.exp(20)
"""verl cuts token ratios here itself."""


def check_mismatch(config: DictConfig) -> None:
    """Corrections have log-probabilities to compare and bands that fit their age, and losses of ours what they read.

    Raises:
        ConfigError: something is missing or contradicts; the message names the key and the remedy.
    """
    _check_correction(config)
    _check_turn_corrected(config)
    check_off_policy(config)
    check_staleness(config)


def _check_correction(config: DictConfig) -> None:
    rule = find(config, CORRECTION) or {}
    corrects = [key for key in ("rollout_is", "rollout_rs") if rule.get(key) is not None]
    reads = [*corrects, *(["bypass_mode"] if rule.get("bypass_mode") else [])]
    if reads and not read(config, "actor_rollout_ref.rollout.calculate_log_probs"):
        raise ConfigError(
            f"{CORRECTION}.{reads[0]} is {rule.get(reads[0])} and the rollout keeps no log-probabilities to "
            "correct by: set actor_rollout_ref.rollout.calculate_log_probs=true, or mismatch=none"
        )
    for key in corrects:
        _ask_verl(config, key)
    if corrects and rule.get("bypass_mode"):
        raise ConfigError(
            f"{CORRECTION}.bypass_mode is true, with which verl's trainer does not apply {CORRECTION}.{corrects[0]}: "
            "set it to false, or mismatch=none"
        )


def _ask_verl(config: DictConfig, key: str) -> None:
    """Apply a rule to one token: verl reads rules and thresholds only when it has a batch."""
    import torch
    from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_rejection_mask

    own = {name: value for name, value in find(config, CORRECTION).items() if name in (key, f"{key}_threshold")}
    token = torch.zeros(1, 1)
    try:
        compute_rollout_correction_and_rejection_mask(token, token, torch.ones(1, 1), **{"rollout_is": None, **own})
    except (TypeError, ValueError) as exc:
        given = " and ".join(f"{CORRECTION}.{name} is {in_words(value)}" for name, value in own.items())
        raise ConfigError(
            f"{given}, which verl refuses ({str(exc).rstrip('.')}): correct what it names, or choose a preset, "
            "as mismatch=mrs or mismatch=tis"
        ) from None


def _check_turn_corrected(config: DictConfig) -> None:
    node = find(config, NODE)
    mode = read(config, "actor_rollout_ref.actor.policy_loss.loss_mode")
    if mode != "turn_corrected":
        if TurnCorrectionOptions.is_set(node):
            raise unread(NODE, mode, "turn_corrected")
        return
    options = TurnCorrectionOptions.from_node(node)
    if options.level == "turn" and find(config, "kernelgym.max_turns") == 1:
        raise ConfigError(
            f"{NODE}.level is turn and kernelgym.max_turns is 1, so a turn is the whole trajectory: set {NODE}.level "
            "to trajectory, or choose mismatch=mrs or tis"
        )
    _check_ratios(config)


def _check_ratios(config: DictConfig) -> None:
    rule = find(config, CORRECTION) or {}
    try:
        cuts = float(str(rule.get("rollout_is_threshold"))) < UNCUT
    except ValueError:
        cuts = True
    wants = {
        "rollout_is": (rule.get("rollout_is") != "token", "token"),
        "rollout_is_threshold": (cuts, "1.0e9, which cuts nothing"),
        "rollout_is_batch_normalize": (bool(rule.get("rollout_is_batch_normalize")), "false"),
    }
    for key, (bad, value) in wants.items():
        if bad:
            raise ConfigError(
                f"{CORRECTION}.{key} is {rule.get(key)} and policy_loss.loss_mode is turn_corrected, which needs the "
                f"token ratios as they are: set it to {value}, or choose mismatch=turn_mrs"
            )
    tokens = [name for name in str(rule.get("rollout_rs") or "").split(",") if name.strip().startswith("token_")]
    if tokens:
        raise ConfigError(
            f"{CORRECTION}.rollout_rs holds {tokens[0].strip()}, which cuts turns into pieces that turn_corrected "
            f"would take for turns: leave it out, or use {NODE}.veto"
        )
