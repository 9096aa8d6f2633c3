# SPDX-License-Identifier: Apache-2.0
"""Checks of the agent loop's configuration, and of Reinforce-Ada's, before a model or a server starts."""

from __future__ import annotations

import logging
import re
from typing import Any

from omegaconf import DictConfig

from verl_kernel.adaptive import AdaOptions
from verl_kernel.adaptive.options import NODE
from verl_kernel.errors import ConfigError, DataError
from verl_kernel.reward.first_validation import KEY
from verl_kernel.reward.novelty import check_cold_start
from verl_kernel.reward.options import RolloutOptions, parse_options
from verl_kernel.reward.rows import has_our_sampler
from verl_kernel.reward.turn_end import find_turn_end, rendered, stop_ids
from verl_kernel.verl_keys import find, read

logger = logging.getLogger(__name__)
MANAGER = "verl_kernel.rollout.manager.KernelAgentLoopManager"
TEMPLATE_OPTIONS = "data.apply_chat_template_kwargs"
THINKING_TOKENS = 8192
"""Least tokens of a turn in which a model thinks: what Dr. Kernel's published script gives its own."""
_HYBRID = re.compile(r"Qwen3-[\d.]+B(-A\d+B)?(-FP8|-AWQ)?", re.IGNORECASE)
"""Names of models that think unless their template is told not to; Base, Instruct and Coder have names of their own."""
_ALWAYS = re.compile(r"thinking|^QwQ|^DeepSeek-R1", re.IGNORECASE)
_MODEL = "actor_rollout_ref.model"
_MANAGER_KEY = "actor_rollout_ref.rollout.agent.agent_loop_manager_class"


def check_turn_end(config: DictConfig) -> None:
    """Check that the chat template ends the assistant's turns, if the tokenizer is on this machine.

    Raises:
        ConfigError: it does not, or `kernelgym.stop_token_ids` holds an id that the tokenizer does not know.
    """
    if (tokenizer := tokenizer_of(config)) is None:
        return
    end = find_turn_end(tokenizer, find(config, TEMPLATE_OPTIONS) or {})
    stop_ids(tokenizer, end, parse_options(find(config, "kernelgym")).rollout.stop_token_ids)


def check_thinking(config: DictConfig) -> None:
    """Check that a model that thinks has the tokens to end its thought and write a program.

    Raises:
        ConfigError: it has fewer, so that most answers would be cut inside the thought and earn 0.
    """
    options = parse_options(find(config, "kernelgym")).rollout
    response = read(config, "data.max_response_length")
    turns = options.max_turns if options.context == "concat" else 1
    room = min(response, options.turn_tokens or response // turns)
    if room >= THINKING_TOKENS or find(config, KEY) == 0 or not _thinks(config):
        return
    raise ConfigError(
        f"{_MODEL}.path is {find(config, f'{_MODEL}.path')}, which thinks before it answers, and a turn has {room} "
        f"tokens: set {TEMPLATE_OPTIONS}.enable_thinking=false (if the model can do without), or "
        f"data.max_response_length to {THINKING_TOKENS * turns} or more with kernelgym.turn_tokens null or "
        f"{THINKING_TOKENS}; {KEY}=0 lets it be cut"
    )


def _thinks(config: DictConfig) -> bool:
    """Whether the model thinks before it answers, by its chat template, or by its name if it is still on the hub."""
    options = find(config, TEMPLATE_OPTIONS) or {}
    if (tokenizer := tokenizer_of(config)) is None:
        name = str(find(config, f"{_MODEL}.path")).rstrip("/").rpartition("/")[2]
        return bool(_ALWAYS.search(name) or (_HYBRID.fullmatch(name) and options.get("enable_thinking", True)))
    question = [{"role": "user", "content": "Write a kernel."}]
    here, silent = (
        rendered(tokenizer, question, {**options, "add_generation_prompt": True, **further})
        for further in ({}, {"enable_thinking": False})
    )
    return here != silent or here.rstrip().endswith("<think>")


def tokenizer_of(config: DictConfig) -> Any:
    """Return the model's tokenizer with the template of the run; None if it is not on this machine."""
    from verl.utils import hf_tokenizer

    path = find(config, f"{_MODEL}.tokenizer_path") or find(config, f"{_MODEL}.path")
    trusted = bool(find(config, f"{_MODEL}.trust_remote_code"))
    try:
        tokenizer = hf_tokenizer(path, local_files_only=True, trust_remote_code=trusted)
    except (OSError, ValueError) as exc:
        # It may still be on the hub; verl loads it later, and then the agent loop checks it.
        logger.info("the chat template of %s is not checked before the start: %s", path, exc)
        return None
    if template := find(config, f"{_MODEL}.custom_chat_template"):
        tokenizer.chat_template = template
    return tokenizer


def check_novelty(config: DictConfig) -> None:
    """Check that `kernelgym.cold_start` names a file of conversations, if it names one.

    Raises:
        DataError: it does not.
    """
    path = parse_options(find(config, "kernelgym")).rollout.cold_start
    if path is None:
        return
    try:
        check_cold_start(path)
    except DataError as exc:
        raise DataError(f"kernelgym.cold_start: {exc}, or set it to null, which measures no novelty") from exc


def check_context(config: DictConfig) -> None:
    """Check that validation-only options are used in validation only, and that prompts have space for earlier turns.

    Raises:
        ConfigError: a key asks for something that cannot be played or trained on.
    """
    options = parse_options(find(config, "kernelgym")).rollout
    if not (read(config, "trainer.val_only") and read(config, "trainer.val_before_train")):
        options.refuse_training()
    if options.context != "concat":
        _check_rebuilt(config, options)


def _check_rebuilt(config: DictConfig, options: RolloutOptions) -> None:
    cause = f"kernelgym.context is {options.context}"
    if read(config, _MANAGER_KEY) != MANAGER:
        raise ConfigError(
            f"{cause} and {_MANAGER_KEY} is {read(config, _MANAGER_KEY)}, which does not tell the agent loop what is "
            f"a validation: set it to {MANAGER}"
        )
    prompt, response, longest = (
        read(config, key)
        for key in ("data.max_prompt_length", "data.max_response_length", "actor_rollout_ref.rollout.max_model_len")
    )
    answer = min(response, options.turn_tokens or response)
    if prompt <= answer:
        raise ConfigError(
            f"{cause}, data.max_prompt_length is {prompt} and an answer may take {answer} tokens, so that a prompt has "
            "no room for an earlier one: set data.max_prompt_length to what the task and kernelgym.window turns with "
            "their feedback take"
        )
    if longest is not None and longest < prompt + answer:
        raise ConfigError(
            f"{cause} and actor_rollout_ref.rollout.max_model_len is {longest}: set it to {prompt + answer} or more, "
            "the longest prompt and its answer (data.max_prompt_length, data.max_response_length)"
        )


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
