# SPDX-License-Identifier: Apache-2.0
"""Checks that the settings of mismatch correction and policy loss fit each other, before anything starts.

Four checks: a correction has log-probabilities to compare; a loss for off-policy data gets the policy that it compares
with, and loss options belong to the chosen loss; no rejection mistakes staleness for mismatch, nor (in
`check_truncation`) the cut of a nucleus. On staleness: verl
computes log pi_train once, with the weights of the step that trains on a sample. If those are newer than the weights
that generated it, pi_train / pi_rollout includes the updates in between, and a band as narrow as MRS's rejects rows for
them.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterator
from types import SimpleNamespace

from omegaconf import DictConfig

from verl_kernel.errors import ConfigError
from verl_kernel.loss.options import (
    CUSTOM,
    MODE,
    PRESETS,
    TOPR,
    RecLossOptions,
    ToprLossOptions,
    TurnCorrectionOptions,
    compares,
    options_of,
)
from verl_kernel.loss.rec import with_eps
from verl_kernel.option_group import OptionGroup, in_words
from verl_kernel.verl_keys import find, read

logger = logging.getLogger(__name__)
NODE = TurnCorrectionOptions.NODE
_ACTOR, _ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
TARGET = "actor_rollout_ref.actor.policy_loss._target_"
CLASS = "verl_kernel.loss.config.KernelPolicyLossConfig"
CORRECTION = "algorithm.rollout_correction"
SAMPLER = "trainer.v1.sampler.sampler_kwargs"
REMEDY = f"set {CORRECTION}.bypass_mode=true and no other correction, as mismatch=bypass does"
UNCUT = math.exp(20)
"""verl itself clips token ratios here."""
NARROW = 0.01
"""Distance from 1 within which a bound on a mean ratio rejects rows because of a mere update."""


def check_mismatch(config: DictConfig) -> None:
    """Check that corrections have log-probabilities and bands that fit the samples' age, and losses their inputs.

    Raises:
        ConfigError: something is missing or contradictory; the message names the key and the remedy.
    """
    _check_correction(config)
    _check_turn_corrected(config)
    check_off_policy(config)
    check_staleness(config)
    check_truncation(config)


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
    """Apply a rule to one token: verl parses rules and thresholds only when it has a batch."""
    import torch
    from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_rejection_mask

    rule = {name: value for name, value in find(config, CORRECTION).items() if name in (key, f"{key}_threshold")}
    token = torch.zeros(1, 1)
    try:
        compute_rollout_correction_and_rejection_mask(token, token, torch.ones(1, 1), **{"rollout_is": None, **rule})
    except (TypeError, ValueError) as exc:
        sentence = " and ".join(f"{CORRECTION}.{name} is {in_words(value)}" for name, value in rule.items())
        raise ConfigError(
            f"{sentence}, which verl refuses ({str(exc).rstrip('.')}): correct what it names, or choose a preset, "
            "as mismatch=mrs or mismatch=tis"
        ) from None


def _check_turn_corrected(config: DictConfig) -> None:
    node = find(config, NODE)
    mode = read(config, MODE)
    if mode != "turn_corrected":
        if TurnCorrectionOptions.is_set(node):
            raise _unread_options(NODE, mode, "turn_corrected")
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


def check_off_policy(config: DictConfig) -> None:
    """Check that options belong to the chosen loss and parse, and that `old_log_prob` is the policy the loss needs.

    Raises:
        ConfigError: one of these does not hold; the message names the key and the remedy.
    """
    mode = read(config, MODE)
    _check_node(config, RecLossOptions, mode, PRESETS, CUSTOM)
    _check_node(config, ToprLossOptions, mode, [TOPR], TOPR)
    if mode == TOPR:
        _check_topr(config)
    if mode in PRESETS:
        options = with_eps(options_of(mode, find(config, RecLossOptions.NODE)), SimpleNamespace(**_clip_range(config)))
        if compares(options):
            _check_rec(config, mode)
        if options.regulariser in ("k2", "k2_sequence"):
            _warn_of_no_pull(config, mode)


def _unread_options(node: str, mode: str, reader: str) -> ConfigError:
    """Return the error for options of a loss that is not chosen, `reader`; most often two presets choose one each."""
    return ConfigError(
        f"{node} is set and {MODE} is {mode}, which does not read it: where a method=... and mismatch=turn_mrs (or "
        "turn_tis) choose a loss each, keep one, with mismatch=bypass or with method=dr_kernel; otherwise set the loss "
        f"to {reader}, or remove the node (on the command line with ~{node})"
    )


def _check_node(config: DictConfig, kind: type[OptionGroup], mode: str, readers: Collection[str], reader: str) -> None:
    if not kind.is_set(find(config, kind.NODE)):
        return
    if mode not in readers:
        raise _unread_options(kind.NODE, mode, reader)
    if read(config, TARGET) != CLASS:
        raise ConfigError(f"{kind.NODE} is set and {TARGET} is a class that does not know it: set it to {CLASS}")


def _check_topr(config: DictConfig) -> None:
    ToprLossOptions.from_node(find(config, ToprLossOptions.NODE))
    if not _bypassed(config):
        raise ConfigError(
            f"{CORRECTION}.bypass_mode is not true and {MODE} is {TOPR}, which weighs answers by the policy that "
            f"generated them: {REMEDY}"
        )


def _check_rec(config: DictConfig, mode: str) -> None:
    """Refuse the trainer's own old_log_prob for older samples, where it hides how far the policy has moved."""
    cause = cause_of_staleness(config)
    if cause is not None and not _bypassed(config):
        raise ConfigError(
            f"{CORRECTION}.bypass_mode is not true, {MODE} is {mode}, and {cause}: samples of older weights would be "
            f"compared with the newest ones instead of those that generated them, so {REMEDY}"
        )


def _warn_of_no_pull(config: DictConfig, mode: str) -> None:
    """Warn if every ratio is 1: the trainer's own old_log_prob is that of the first update, then the only one."""
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


def check_staleness(config: DictConfig) -> None:
    """Refuse a narrow band on samples of older weights, unless the configuration allows it.

    Raises:
        ConfigError: a narrow band would be applied; the message names the preset to use.
    """
    cause = cause_of_staleness(config)
    if cause is None or find(config, f"{SAMPLER}.allow_narrow_band"):
        return
    for key, bound in (*_row_bounds(config), *_turn_bounds(config)):
        if abs(bound - 1) < NARROW:
            raise ConfigError(
                f"{key} holds the bound {bound:.6g} and {cause}, so samples of older weights are trained on and every "
                "update would count as mismatch: set mismatch=stale_tis (or stale_clip), or "
                f"{SAMPLER}.allow_narrow_band=true to reject them nevertheless"
            )


def cause_of_staleness(config: DictConfig) -> str | None:
    """Return the setting by which samples may be older than the weights they train, in words; None if there is none."""
    mode = read(config, "trainer.v1.trainer_mode")
    if find(config, f"{SAMPLER}.group_carry_over"):
        return f"{SAMPLER}.group_carry_over is true"
    ahead = find(config, f"trainer.v1.{mode}.num_warmup_batches")
    if mode != "sync" and ahead:
        return f"trainer.v1.{mode}.num_warmup_batches is {ahead}"
    return None


def check_truncation(config: DictConfig) -> None:
    """Refuse a narrow band where the rollout's log-probabilities are of another distribution than the trainer's.

    verl asks vLLM for those after temperature, `top_p` and `top_k`, renormalised over the words that are left; the
    trainer's are after temperature, over all words. Their ratio is the share of the words that were left.

    Raises:
        ConfigError: such a band would reject nearly every row; the message names the keys and the remedy.
    """
    bounds = (*_row_bounds(config), *_turn_bounds(config))
    band = next((f"{key} holds the bound {bound:.6g}" for key, bound in bounds if abs(bound - 1) < NARROW), None)
    if band is None:
        return
    mode, temperature, top_p, top_k = (
        read(config, f"{_ROLLOUT}.{key}") for key in ("logprobs_mode", "temperature", "top_p", "top_k")
    )
    if mode == "raw_logprobs" and temperature != 1:
        raise ConfigError(
            f"{_ROLLOUT}.logprobs_mode is raw_logprobs, {_ROLLOUT}.temperature is {temperature} and {band}: the "
            f"trainer's log-probabilities are after the temperature, so nearly every row would be rejected; set "
            f"{_ROLLOUT}.temperature=1, or {_ROLLOUT}.logprobs_mode=processed_logprobs"
        )
    cut = f"top_p is {top_p}" if top_p < 1 else f"top_k is {top_k}" if top_k > 0 else None
    if mode != "raw_logprobs" and cut:
        raise ConfigError(
            f"{_ROLLOUT}.{cut} and {band}: the rollout's log-probabilities are over the words that it leaves, so "
            f"nearly every row would be rejected; set top_p=1 and top_k=-1, or {_ROLLOUT}.logprobs_mode=raw_logprobs "
            "with temperature=1, or mismatch=tis"
        )


def _row_bounds(config: DictConfig) -> Iterator[tuple[str, float]]:
    """Yield the bounds of verl's rules on mean ratios."""
    rule = find(config, CORRECTION) or {}
    names = [name.strip() for name in str(rule.get("rollout_rs") or "").split(",")]
    specs = [spec.strip() for spec in str(rule.get("rollout_rs_threshold")).split(",")]
    # verl applies a single threshold to all rules.
    for name, spec in zip(names, specs * len(names) if len(specs) == 1 else specs, strict=False):
        if name == "seq_mean_k1":
            yield from ((f"{CORRECTION}.rollout_rs_threshold", float(bound)) for bound in spec.split("_"))


def _turn_bounds(config: DictConfig) -> Iterator[tuple[str, float]]:
    """Yield the bounds of `turn_corrected`."""
    node = find(config, NODE) or {}
    yield from ((f"{NODE}.{key}", float(node[key])) for key in ("low", "high") if node.get(key) is not None)
