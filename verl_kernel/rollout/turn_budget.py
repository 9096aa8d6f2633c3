# SPDX-License-Identifier: Apache-2.0
"""How much a trajectory may spend: turns, tokens, seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Spent:
    """What a trajectory has spent."""

    turns: int = 0
    tokens: int = 0
    """Of all prompts and answers: what an earlier turn said counts again in every prompt that shows it."""
    seconds: float = 0.0
    """Generating and judging."""

    def plus(self, tokens: int, seconds: float) -> Spent:
        """After one more turn."""
        return Spent(self.turns + 1, self.tokens + tokens, self.seconds + seconds)


@dataclass(frozen=True)
class TurnBudget:
    """Limits of a trajectory, asked before each turn; None knows no limit.

    A turn that has begun is played to its end, so tokens and seconds are exceeded by less than one turn's.
    """

    turns: int
    tokens: int | None = None
    seconds: float | None = None

    def exhausted(self, spent: Spent) -> Literal["turns", "tokens", "seconds"] | None:
        """What forbids a further turn; None where nothing does."""
        if spent.turns >= self.turns:
            return "turns"
        if self.tokens is not None and spent.tokens >= self.tokens:
            return "tokens"
        if self.seconds is not None and spent.seconds >= self.seconds:
            return "seconds"
        return None
