# SPDX-License-Identifier: Apache-2.0
"""The questions of a bench to a model, and the answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from verl_kernel.bench.records import Failure
from verl_kernel.bench.suites.suite import Message, SuiteItem
from verl_kernel.env import EvalResult


@dataclass(frozen=True)
class Question:
    """The question at one turn."""

    item: SuiteItem
    sample: int
    """Number of the sample, from 0."""
    turn: int
    """Number of the turn, from 1."""
    messages: Sequence[Message]
    seed: int
    """Seed of this answer alone."""


@dataclass(frozen=True)
class Answer:
    """A model's answer, or a ready program."""

    text: str | None = None
    """Text of the answer; None for a program without a text."""
    code: str | None = None
    """A program that comes without a text around it."""
    verdict: EvalResult | None = None
    """A verdict that is known without judging."""
    is_cut: bool = False
    """Whether the answer was cut at its limit of tokens."""
    failure: Failure | None = None
    fault: str = ""
    """For a malformed answer: its source and its content."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class Model(Protocol):
    """A source of answers."""

    @property
    def clean(self) -> Callable[[str], str]:
        """Return a function that removes from a text all that would end a message of this model's chat template."""
        ...

    async def check(self) -> None:
        """Raise an error if the model cannot answer at all, before anything expensive begins."""
        ...

    async def answer(self, question: Question) -> Answer:
        """Answer one question.

        Raises:
            EndpointError: the model does not answer; the run can be continued later.
            ConfigError: the model refuses the request.
        """
        ...

    async def close(self) -> None:
        """Close connections."""
        ...
