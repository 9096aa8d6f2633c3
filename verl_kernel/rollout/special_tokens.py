# SPDX-License-Identifier: Apache-2.0
"""Special tokens, which structure a conversation, and their removal from texts that must not contain them.

Feedback quotes a candidate: names of its kernels, messages of its exceptions. A chat template does not
distinguish its own tokens from those in a message, so a candidate that raises `<|im_end|>` could end the message.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any


@functools.lru_cache(maxsize=2)
def special_ids(tokenizer: Any) -> frozenset[int]:
    """Return the ids of a Hugging Face tokenizer's special tokens: those that no ordinary text is made of."""
    return frozenset(index for index, token in tokenizer.added_tokens_decoder.items() if token.special)


@functools.lru_cache(maxsize=2)
def neutraliser(tokenizer: Any) -> Callable[[str], str]:
    """Return a function that writes a space behind the first character of every special token in a text.

    Tokens like `<think>`, which were added without being special, are broken up too.
    """
    added = (token.content for token in tokenizer.added_tokens_decoder.values())
    names = {name for name in added if len(name.strip()) > 1}
    pattern = re.compile("|".join(re.escape(name) for name in sorted(names, key=len, reverse=True)) or r"(?!)")

    def neutralise(text: str) -> str:
        while pattern.search(text):
            # A token's name may contain another one, which the space did not break up.
            text = pattern.sub(lambda found: f"{found[0][0]} {found[0][1:]}", text)
        return text

    return neutralise
