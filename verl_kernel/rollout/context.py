# SPDX-License-Identifier: Apache-2.0
"""Sequential test-time scaling: all turns are stored, and a prompt shows a few of them (arXiv 2602.05885).

Turns are numbered from 1. The rules for the turns that a prompt shows:
    concat: all.
    last: the last `window`.
    best_window: the `window` consecutive turns with the largest sum of rewards, the earliest of several; as in the
        paper's published code.
    top_w: the `window` turns with the highest rewards, as in the paper. Among equal rewards the latest, so that a model
        that always fails does not get the same prompt for ever.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from verl_kernel.reward.options import Context

Message = dict[str, str]


@dataclass(frozen=True)
class PastTurn:
    """A finished turn: the model's answer, the feedback on it, and its reward."""

    answer: str
    feedback: str
    reward: float


def shown_turns(rewards: Sequence[float], context: Context, window: int) -> tuple[int, ...]:
    """Choose the earlier turns that the next prompt shows.

    Args:
        rewards: rewards of all earlier turns, in order; finite.
        context: the rule.
        window: largest number of turns, at least 0; `concat` ignores it.

    Returns:
        Numbers of turns, ascending.
    """
    played = len(rewards)
    if context == "concat" or played <= window:
        return tuple(range(1, played + 1))
    if context == "top_w":
        ranked = sorted(range(1, played + 1), key=lambda number: (rewards[number - 1], number))
        return tuple(sorted(ranked[played - window :]))
    start = played - window if context == "last" else _best_start(rewards, window)
    return tuple(range(start + 1, start + window + 1))


def rebuilt_messages(
    messages: Sequence[Mapping[str, str]], turns: Sequence[PastTurn], turns_shown: Sequence[int]
) -> list[Message]:
    """Build the next prompt.

    Args:
        messages: messages of the task, including the system message.
        turns: all earlier turns, in order.
        turns_shown: turns that `shown_turns` chose.

    Returns:
        The task's messages, then for each turn shown the answer and the feedback as it was then.
    """
    rebuilt = [dict(message) for message in messages]
    for turn in (turns[number - 1] for number in turns_shown):
        rebuilt += [{"role": "assistant", "content": turn.answer}, {"role": "user", "content": turn.feedback}]
    return rebuilt


def _best_start(rewards: Sequence[float], window: int) -> int:
    """Return where the best run begins; `fsum` is exact, so the order of equal rewards has no influence."""
    return max(range(len(rewards) - window + 1), key=lambda first: math.fsum(rewards[first : first + window]))
