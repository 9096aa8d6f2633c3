# SPDX-License-Identifier: Apache-2.0
"""Tells the policy's own words in a response from those of tools and users between its turns.

verl hands a reward manager the tokens of a whole conversation, tools' texts included, and mostly no mask. A tool may
quote a program, as a file that it reads or the answer that it advises; only the policy's own may be judged.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from os.path import commonprefix
from typing import Any

from verl_kernel.errors import ConfigError
from verl_kernel.reward.turn_end import first_special, rendered

_QUESTION, _ANSWER, _NEXT = "questionofthefirstturn", "answerofthefirstturn", "wordsofanotherone"


def own_turns(tokenizer: Any, ids: Sequence[int], mask: Sequence[int] | None = None) -> list[list[int]]:
    """Return the token ids of each of the policy's turns in a response, the first turn first.

    Args:
        tokenizer: a Hugging Face tokenizer; without a template that opens and ends turns, all is one turn.
        ids: token ids of a response, without padding.
        mask: 1 for each token of the policy's, 0 for the others; None where it is not known.
    """
    if mask is not None:
        return _masked_runs(ids, mask)
    opening, ends = _marks(tokenizer)
    starts = [
        position
        for position in range(len(ids))
        if opening and tuple(ids[position : position + len(opening)]) == opening
    ]
    turns = [list(ids[: starts[0] if starts else None])]
    turns += [list(ids[start + len(opening) : end]) for start, end in zip(starts, [*starts[1:], None], strict=False)]
    return [_before_end(turn, ends) for turn in turns]


def _masked_runs(ids: Sequence[int], mask: Sequence[int]) -> list[list[int]]:
    runs: list[list[int]] = [[]]
    for index, is_own in zip(ids, mask, strict=True):
        if is_own:
            runs[-1].append(index)
        elif runs[-1]:
            runs.append([])
    return runs if runs[-1] or len(runs) == 1 else runs[:-1]


def _before_end(turn: list[int], ends: frozenset[int]) -> list[int]:
    return turn[: next((position for position, token in enumerate(turn) if token in ends), None)]


@functools.lru_cache(maxsize=2)
def _marks(tokenizer: Any) -> tuple[tuple[int, ...], frozenset[int]]:
    """Return the tokens that open an assistant's turn, and those of which the first one after it ends it."""
    question = [{"role": "user", "content": _QUESTION}]
    answered = [*question, {"role": "assistant", "content": _ANSWER}]
    try:
        before = rendered(tokenizer, question, None)
        forms = [rendered(tokenizer, question, {"add_generation_prompt": True}), rendered(tokenizer, answered, None)]
    except ConfigError:  # no template: its single turn is all of it
        return (), frozenset()
    beginnings = [form.removeprefix(before).partition(_ANSWER)[0] for form in forms]
    opening = commonprefix(beginnings)  # noqa: RUF071  texts are meant, not paths
    ends = {end for role in ("user", "tool") if (end := _end_before(tokenizer, answered, role)) is not None}
    return tuple(tokenizer.encode(opening, add_special_tokens=False)), frozenset(ends)


def _end_before(tokenizer: Any, answered: list[dict[str, str]], role: str) -> int | None:
    """Return the first special token between an answer and the next message of a role."""
    try:
        talk = rendered(tokenizer, [*answered, {"role": role, "content": _NEXT}], None)
    except ConfigError:  # not every template knows tools
        return None
    return first_special(tokenizer, talk.rpartition(_ANSWER)[2].partition(_NEXT)[0])
