# SPDX-License-Identifier: Apache-2.0
"""The budget of a trajectory: turns, tokens, seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Usage:
    """The turns, tokens and seconds that a trajectory has spent."""

    turns: int = 0
    tokens: int = 0
    """Tokens of all prompts and answers: an earlier turn counts again in every prompt that shows it."""
    seconds: float = 0.0
    """Seconds of generating and judging."""

    def plus(self, tokens: int, seconds: float) -> Usage:
        """Return the total after one more turn."""
        return Usage(self.turns + 1, self.tokens + tokens, self.seconds + seconds)


@dataclass(frozen=True)
class TurnBudget:
    """Limits of a trajectory, checked before each turn; None is no limit.

    A turn that has begun is played to its end, so tokens and seconds may be exceeded by less than one turn.
    """

    turns: int
    tokens: int | None = None
    seconds: float | None = None

    def exhausted(self, usage: Usage) -> Literal["turns", "tokens", "seconds"] | None:
        """Return the limit that forbids a further turn; None if none does."""
        if usage.turns >= self.turns:
            return "turns"
        if self.tokens is not None and usage.tokens >= self.tokens:
            return "tokens"
        if self.seconds is not None and usage.seconds >= self.seconds:
            return "seconds"
        return None
