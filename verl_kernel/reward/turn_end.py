# SPDX-License-Identifier: Apache-2.0
"""Finds how a chat template ends the assistant's turn, and removes special tokens from texts that must not hold them.

The end of a turn may differ from the tokenizer's end of sequence: base models end a text with `<|endoftext|>` and a
turn with `<|im_end|>`, and GLM's turns end only by the next message's `<|user|>`.

Feedback quotes a candidate: names of its kernels, messages of its exceptions. A chat template does not distinguish its
own tokens from those in a message, so a candidate that raises `<|im_end|>` could end the message.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import TemplateError

from verl_kernel.errors import ConfigError

_QUESTION, _ANSWER, _NEXT = "questionofthefirstturn", "answerofthefirstturn", "questionofthesecondturn"
_REMEDY = (
    "give actor_rollout_ref.model.custom_chat_template a chat template that ends the assistant's messages with a "
    "special token"
)


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
            text = pattern.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text)
        return text

    return neutralise


@dataclass(frozen=True)
class TurnEnd:
    """The token at which an assistant's turn ends."""

    token_id: int
    opens_next: bool
    """Whether it is the first token of the next message instead of the last one of the turn."""
    behind: tuple[int, ...] = ()
    """The template's text after the end and before the next message, e.g. a line break."""


def find_turn_end(tokenizer: Any, options: Mapping[str, Any] | None = None) -> TurnEnd:
    """Find the turn's end by rendering a short conversation.

    Args:
        tokenizer: a Hugging Face tokenizer with a chat template.
        options: further arguments of the template (`data.apply_chat_template_kwargs`).

    Raises:
        ConfigError: the tokenizer has no chat template, or the template marks the end of a turn only by text.
    """
    talk = [{"role": "user", "content": _QUESTION}, {"role": "assistant", "content": _ANSWER}]
    last = rendered(tokenizer, talk, options).rpartition(_ANSWER)[2]
    followed = rendered(tokenizer, [*talk, {"role": "user", "content": _NEXT}], options).rpartition(_ANSWER)[2]
    end = first_special(tokenizer, followed.partition(_NEXT)[0])
    if end is not None:
        opens_next = first_special(tokenizer, last) != end
        return TurnEnd(end, opens_next, () if opens_next else _behind(tokenizer, last, followed, end))
    raise ConfigError(f"the chat template of {tokenizer.name_or_path} marks no end of a turn: {_REMEDY}")


def stop_ids(tokenizer: Any, end: TurnEnd, further: Sequence[int] = ()) -> list[int]:
    """Return the tokens at which generation stops, in addition to those of the model's generation config.

    Raises:
        ConfigError: `further` (`kernelgym.stop_token_ids`) holds an id that the tokenizer does not know.
    """
    unknown = [index for index in further if index >= len(tokenizer)]
    if unknown:
        raise ConfigError(
            f"kernelgym.stop_token_ids holds {unknown[0]}, but the tokenizer's last id is {len(tokenizer) - 1}: give "
            "ids of this model's tokens"
        )
    return sorted({end.token_id, *further})


def _behind(tokenizer: Any, last: str, followed: str, end: int) -> tuple[int, ...]:
    ids = tokenizer.encode(last, add_special_tokens=False)
    return tuple(ids[ids.index(end) + 1 :]) if followed.startswith(last) else ()


def first_special(tokenizer: Any, text: str) -> int | None:
    """Return the first special token of a text; None where it has none."""
    ids = tokenizer.encode(text, add_special_tokens=False)
    return next((index for index in ids if index in special_ids(tokenizer)), None)


def rendered(tokenizer: Any, messages: list[dict[str, str]], options: Mapping[str, Any] | None) -> str:
    """Return a conversation as the chat template writes it (raises ConfigError where it cannot)."""
    try:
        return str(tokenizer.apply_chat_template(messages, tokenize=False, **(options or {})))
    except (ValueError, TypeError, KeyError, TemplateError) as exc:
        raise ConfigError(
            f"the chat template of {tokenizer.name_or_path} renders no conversation ({exc}): {_REMEDY}"
        ) from exc
