# SPDX-License-Identifier: Apache-2.0
"""What a bench asks of a model, and what comes back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from verl_kernel.bench.records import Failure
from verl_kernel.bench.suites.suite import Message, SuiteItem
from verl_kernel.env import EvalResult


@dataclass(frozen=True)
class Question:
    """What is asked at one turn."""

    item: SuiteItem
    sample: int
    """From 0."""
    turn: int
    """From 1."""
    messages: Sequence[Message]
    seed: int
    """Of this answer alone."""


@dataclass(frozen=True)
class Answer:
    """What a model said; where it is a program by itself, that program."""

    text: str | None = None
    """Null where programs come without one."""
    code: str | None = None
    """A program that stands in no text."""
    verdict: EvalResult | None = None
    """Known without judging."""
    is_cut: bool = False
    """Whether it was cut at its limit of tokens."""
    failure: Failure | None = None
    fault: str = ""
    """Of a malformed answer: where it came from, and what it was."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class Model(Protocol):
    """Whoever answers."""

    @property
    def clean(self) -> Callable[[str], str]:
        """Takes out of a text what would end a message of this model's chat template."""
        ...

    async def check(self) -> None:
        """Raise a sentence where it cannot answer at all, before anything expensive begins."""
        ...

    async def answer(self, question: Question) -> Answer:
        """Answer one question.

        Raises:
            EndpointError: it does not answer; the run can go on later.
            ConfigError: it refuses to.
        """
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...
