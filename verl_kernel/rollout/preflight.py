# SPDX-License-Identifier: Apache-2.0
"""Check of the model's chat template before a model or a server starts."""

from __future__ import annotations

import logging

from omegaconf import DictConfig, OmegaConf

from verl_kernel.reward.options import parse_options
from verl_kernel.rollout.turn_end import find_turn_end, stop_ids

logger = logging.getLogger(__name__)


def check_turn_end(config: DictConfig) -> None:
    """The chat template of a model whose tokenizer is on this machine ends the assistant's turns.

    Raises:
        ConfigError: it does not, or `kernelgym.stop_token_ids` holds an id that the tokenizer does not know.
    """
    from verl.utils import hf_tokenizer

    model = config.actor_rollout_ref.model
    path = OmegaConf.select(model, "tokenizer_path") or model.path
    try:
        tokenizer = hf_tokenizer(
            path, local_files_only=True, trust_remote_code=bool(OmegaConf.select(model, "trust_remote_code"))
        )
    except (OSError, ValueError) as exc:
        # It may be on the hub still; verl loads it later, and the agent loop checks it then.
        logger.info("the chat template of %s is not checked before the start: %s", path, exc)
        return
    if template := OmegaConf.select(model, "custom_chat_template"):
        tokenizer.chat_template = template
    options = OmegaConf.select(config, "data.apply_chat_template_kwargs") or {}
    end = find_turn_end(tokenizer, options)
    stop_ids(tokenizer, end, parse_options(OmegaConf.select(config, "kernelgym")).rollout.stop_token_ids)
