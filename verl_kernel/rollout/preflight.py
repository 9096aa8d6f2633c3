# SPDX-License-Identifier: Apache-2.0
"""Checks of the agent loop's configuration before a model or a server starts."""

from __future__ import annotations

import logging

from omegaconf import DictConfig

from verl_kernel.errors import ConfigError
from verl_kernel.reward.options import RolloutOptions, parse_options
from verl_kernel.rollout.turn_end import find_turn_end, stop_ids
from verl_kernel.verl_keys import find, read

logger = logging.getLogger(__name__)
MANAGER = "verl_kernel.rollout.manager.KernelAgentLoopManager"


def check_turn_end(config: DictConfig) -> None:
    """Check that the chat template ends the assistant's turns, if the tokenizer is on this machine.

    Raises:
        ConfigError: it does not, or `kernelgym.stop_token_ids` holds an id that the tokenizer does not know.
    """
    from verl.utils import hf_tokenizer

    model = "actor_rollout_ref.model"
    path = find(config, f"{model}.tokenizer_path") or find(config, f"{model}.path")
    trusted = bool(find(config, f"{model}.trust_remote_code"))
    try:
        tokenizer = hf_tokenizer(path, local_files_only=True, trust_remote_code=trusted)
    except (OSError, ValueError) as exc:
        # It may still be on the hub; verl loads it later, and then the agent loop checks it.
        logger.info("the chat template of %s is not checked before the start: %s", path, exc)
        return
    if template := find(config, f"{model}.custom_chat_template"):
        tokenizer.chat_template = template
    options = find(config, "data.apply_chat_template_kwargs") or {}
    end = find_turn_end(tokenizer, options)
    stop_ids(tokenizer, end, parse_options(find(config, "kernelgym")).rollout.stop_token_ids)


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
    asked, manager = (
        f"kernelgym.context is {options.context}",
        "actor_rollout_ref.rollout.agent.agent_loop_manager_class",
    )
    if read(config, manager) != MANAGER:
        raise ConfigError(
            f"{asked} and {manager} is {read(config, manager)}, which does not tell the agent loop what is "
            f"a validation: set it to {MANAGER}"
        )
    prompt, response, longest = (
        read(config, key)
        for key in ("data.max_prompt_length", "data.max_response_length", "actor_rollout_ref.rollout.max_model_len")
    )
    answer = min(response, options.turn_tokens or response)
    if prompt <= answer:
        raise ConfigError(
            f"{asked}, data.max_prompt_length is {prompt} and an answer may take {answer} tokens, so that a prompt has "
            "no room for an earlier one: set data.max_prompt_length to what the task and kernelgym.window turns with "
            "their feedback take"
        )
    if longest is not None and longest < prompt + answer:
        raise ConfigError(
            f"{asked} and actor_rollout_ref.rollout.max_model_len is {longest}: set it to {prompt + answer} or more, "
            "the longest prompt and its answer (data.max_prompt_length, data.max_response_length)"
        )
