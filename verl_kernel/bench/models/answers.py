# SPDX-License-Identifier: Apache-2.0
"""The questions of a bench to a model, and the answers.

The body of a chat completion is parsed without trust: a value that is absent or of another type counts as missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from verl_kernel.bench.records import Failure
from verl_kernel.bench.suites import Message, SuiteItem
from verl_kernel.env import EvalResult
from verl_kernel.errors import EndpointError

_QUOTED = 60
"""Characters of a body that a message quotes."""


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
class ModelAnswer:
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


class LanguageModel(Protocol):
    """A source of answers."""

    @property
    def clean(self) -> Callable[[str], str]:
        """Return a function that removes from a text all that would end a message of this model's chat template."""
        ...

    async def check(self) -> None:
        """Raise an error if the model cannot answer at all, before anything expensive begins."""
        ...

    async def answer(self, question: Question) -> ModelAnswer:
        """Answer one question.

        Raises:
            EndpointError: the model does not answer; the run can be continued later.
            ConfigError: the model refuses the request.
        """
        ...

    async def close(self) -> None:
        """Close connections."""
        ...


def parse_reply(body: bytes) -> ModelAnswer:
    """Return the answer that a body holds; if it holds none, a `malformed` one that quotes the body."""
    try:
        reply = json.loads(body)
    except (ValueError, RecursionError):
        return ModelAnswer(failure="malformed", fault=_no_json(body))
    try:
        choice = reply["choices"][0]
        text = choice["message"].get("content")
    except (KeyError, IndexError, TypeError, AttributeError):
        return ModelAnswer(failure="malformed", fault=f"JSON without an answer in `choices` ({_quoted(body)})")
    is_cut = choice.get("finish_reason") == "length"
    is_text = isinstance(text, str) and bool(text)
    failure: Failure | None = None if is_text else "too_long" if is_cut else "malformed"
    return ModelAnswer(
        # JSON may hold half of a surrogate pair, which a UTF-8 file cannot.
        text=str(text).encode(errors="replace").decode() if is_text else "",
        is_cut=is_cut,
        failure=failure,
        fault=_no_content(choice) if failure == "malformed" else "",
        prompt_tokens=_count(reply, "prompt_tokens"),
        completion_tokens=_count(reply, "completion_tokens"),
    )


def no_endpoint(answer: ModelAnswer, questions: int) -> EndpointError:
    """Return the error for an endpoint all of whose answers are malformed; `answer` is the last of them."""
    return EndpointError(
        f"{answer.fault} and no chat completion to {questions} question{'s' * (questions > 1)}: see that --base-url "
        "names an OpenAI-compatible endpoint (its path ends in /v1 as a rule), and that the server's chat template and "
        "reasoning parser fit the model; nothing of it was written down, and the same command goes on"
    )


def _no_json(body: bytes) -> str:
    if not body.strip():
        return "an empty body"
    if b"\0" in body or b"\xef\xbf\xbd" in body.decode(errors="replace").encode():
        return f"bytes that are no text ({len(body)} of them)"
    start = body.lstrip()[:1]
    kind = "a page of HTML" if start == b"<" else "JSON that breaks off" if start in b"{[" else "text that is no JSON"
    return f"{kind} ({_quoted(body)})"


def _no_content(choice: dict[str, Any]) -> str:
    message, content = choice["message"], choice["message"].get("content")
    if choice.get("finish_reason") == "content_filter" or message.get("refusal"):
        reason = _shortened(str(message.get("refusal") or "content_filter"))
        return f"an answer that the endpoint's filter refused ({reason})"
    if message.get("tool_calls"):
        return "an answer that calls tools in place of text (switch tools off at the server)"
    if content is None or content == "":
        what = "null" if content is None else "empty"
        return f"an answer whose `content` is {what} (a server's reasoning parser may put all words elsewhere)"
    return f"an answer whose `content` is no text ({_shortened(json.dumps(content))})"


def _quoted(body: bytes) -> str:
    return _shortened(" ".join(body.decode(errors="replace").split()))


def _shortened(text: str) -> str:
    printable = "".join(character if character.isprintable() else "?" for character in text[: _QUOTED + 1])
    return printable if len(text) <= _QUOTED else f"{printable[:_QUOTED]}..."


def _count(reply: dict[str, Any], key: str) -> int | None:
    usage = reply.get("usage")
    value = usage.get(key) if isinstance(usage, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else None
