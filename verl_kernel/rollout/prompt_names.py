# SPDX-License-Identifier: Apache-2.0
"""Names of prompts that repeat from step to step and from run to run, unlike verl's random uid."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

PROMPT_NAME = "ada_prompt"
"""Key of a row that holds its prompt's name."""


def prompt_name(messages: Sequence[Any]) -> str:
    """Return the name of a prompt: a hash of its messages, so rows of a dataset that ask the same share a name."""
    text = json.dumps(list(messages), sort_keys=True, default=str, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:24]
