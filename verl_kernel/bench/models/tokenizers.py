# SPDX-License-Identifier: Apache-2.0
"""Request settings from a model's tokenizer, so that turns end as they do in training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from verl_kernel.errors import ConfigError


def read_tokenizer(folder: Path) -> tuple[Callable[[str], str], dict[str, Any]]:
    """Return a function that removes special tokens from feedback, and further keys for each request to vLLM.

    The keys end a turn where the chat template does, and turn off the sampling defaults of the model's files.

    Raises:
        ConfigError: the folder holds no tokenizer with a chat template that ends turns.
    """
    from transformers import AutoTokenizer

    from verl_kernel.rollout.special_tokens import neutraliser
    from verl_kernel.rollout.turn_end import find_turn_end, stop_ids

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError) as exc:
        raise ConfigError(f"{folder} holds no tokenizer that can be read ({exc}): save one beside the model") from exc
    stops = stop_ids(tokenizer, find_turn_end(tokenizer))
    extra = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "stop_token_ids": stops}
    return neutraliser(tokenizer), extra
