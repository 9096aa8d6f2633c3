# SPDX-License-Identifier: Apache-2.0
"""A model behind an OpenAI-compatible endpoint (`POST <base_url>/chat/completions`).

The client is `openai`'s, with its retries and back-off for rate limits, failing servers and lost connections. A body is
read in pieces and parsed by our own rules, because neither its size nor its form can be trusted.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

from verl_kernel.bench.models.answers import ModelAnswer, Question, no_endpoint, parse_reply
from verl_kernel.bench.suites import Message
from verl_kernel.errors import ConfigError, EndpointError, EnvironmentNotReady

_CHECK_S, _REASKED = 10.0, 2
"""Seconds for a connection and for the first check; further attempts where an answer is malformed."""
_LIST_BYTES = 1 << 22
"""Largest list of models that is read: a wrong address may send a body without end."""
_GREETING, _GREETING_TOKENS = ({"role": "user", "content": "Say yes."},), 16
"""Token limit of the test question that is asked if no list of models arrives; some endpoints allow no lower one."""
_BYTES_PER_TOKEN, _ENVELOPE = 64, 1 << 16
"""Bytes allowed for each token of a body; a token of JSON text takes far fewer."""
_OVERFLOW = re.compile(
    r"context.{0,20}(length|window|size)|maximum.{0,20}length|(prompt|input).{0,30}too long", re.I | re.S
)
_CHAT_TOKEN = re.compile(r"<(?=\|[^|<>\n]{1,40}\|>)")


def split_chat_tokens(text: str) -> str:
    """Break up every `<|name|>`, the form of most chat templates' tokens, by a space after its first character."""
    return _CHAT_TOKEN.sub("< ", text)


@dataclass(frozen=True)
class Sampling:
    """The sampling settings of an endpoint."""

    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 8192
    """Limit of tokens of one answer."""
    timeout_s: float = 600.0
    """Seconds for one answer, from the request to its last byte."""
    retries: int = 6
    """Retries after the first attempt; the pauses between them grow to eight seconds."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Further keys of the request's body."""


class Endpoint:
    """One model at one endpoint.

    Args:
        base_url: as in `http://127.0.0.1:8000/v1`.
        model: the model's name at the endpoint.
        key: sent as the bearer token.
        sampling: the sampling settings.
        clean: see `Model`.
        is_own: whether it is a server that we started, which is reached without a proxy.

    Raises:
        EnvironmentNotReady: the package openai is missing.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        key: str,
        sampling: Sampling,
        clean: Callable[[str], str] = split_chat_tokens,
        *,
        is_own: bool = False,
    ) -> None:
        self.clean, self._model, self._sampling, self._url = clean, model, sampling, base_url
        self._openai = require_client()
        import httpx

        self._httpx = httpx
        timeout = httpx.Timeout(sampling.timeout_s, connect=_CHECK_S)
        http = httpx.AsyncClient(timeout=timeout, trust_env=not is_own, limits=httpx.Limits(max_connections=None))
        self._client = self._openai.AsyncOpenAI(
            base_url=base_url, api_key=key, timeout=timeout, max_retries=sampling.retries, http_client=http
        )
        self._limit_key, self._has_answered = "max_tokens", False

    async def check(self) -> None:
        """Ask for the list of models, which costs nothing; if none arrives, ask for a few words.

        Raises:
            ConfigError: the key is refused.
            EndpointError: nothing answers, or the server does not support chat.
        """
        quick = self._client.with_options(timeout=_CHECK_S, max_retries=min(1, self._sampling.retries))
        try:
            is_listed = await asyncio.wait_for(_lists_models(quick), 2 * _CHECK_S)
        except (self._openai.AuthenticationError, self._openai.PermissionDeniedError) as exc:
            raise self._key_refused(exc) from exc
        except (self._openai.APIConnectionError, self._httpx.HTTPError, asyncio.TimeoutError) as exc:
            raise EndpointError(
                f"{self._url} does not answer ({_error_text(exc)}): start the server, or name another --base-url"
            ) from exc
        except self._openai.OpenAIError:
            is_listed = False
        if not is_listed:  # not every endpoint lists its models
            await self._greet()

    async def answer(self, question: Question) -> ModelAnswer:
        """Ask one question; see `Model`."""
        for _ in range(1 + _REASKED):
            answer = await self._ask_once(question)
            if answer.failure != "malformed":
                self._has_answered = True
                return answer
        return self._with_origin(answer)

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()

    async def _greet(self) -> None:
        """Raise an EndpointError if a chat brings no completion; other failures are left to the first question."""
        try:
            body = await self._body(_GREETING, 0, _GREETING_TOKENS)
        except (self._openai.OpenAIError, self._httpx.HTTPError):
            return
        answer = ModelAnswer() if body is None else parse_reply(body)
        if answer.failure == "malformed":
            raise no_endpoint(self._with_origin(answer), 1)

    def _with_origin(self, answer: ModelAnswer) -> ModelAnswer:
        return replace(answer, fault=f"{self._url} sent {answer.fault}")

    async def _ask_once(self, question: Question) -> ModelAnswer:
        limit_s = (1 + self._sampling.retries) * self._sampling.timeout_s
        try:
            request = self._body(question.messages, question.seed, self._sampling.max_tokens)
            body = await asyncio.wait_for(request, limit_s)
        except (self._openai.AuthenticationError, self._openai.PermissionDeniedError) as exc:
            raise self._key_refused(exc) from exc
        except self._openai.NotFoundError as exc:
            raise ConfigError(
                f"{self._url} has no model {self._model}, or no chat at this path ({_error_text(exc)}): name a "
                "--model that it has, and see that --base-url is right, whose path ends in /v1 as a rule"
            ) from exc
        except (self._openai.BadRequestError, self._openai.UnprocessableEntityError) as exc:
            return await self._after_refusal(exc, question)
        except self._openai.RateLimitError as exc:
            raise self._endpoint_error("limits the rate of requests", exc, "lower --requests or wait") from exc
        except (self._openai.OpenAIError, self._httpx.HTTPError, asyncio.TimeoutError) as exc:
            if self._is_late(exc):
                remedy = f"see to the server, or allow more than {self._sampling.timeout_s:g} s with --request-timeout"
                raise self._endpoint_error("has stopped answering", exc, remedy) from exc
            raise self._endpoint_error("has stopped answering", exc, "see to the server") from exc
        return ModelAnswer(failure="too_long", is_cut=True) if body is None else parse_reply(body)

    def _is_late(self, exc: Exception) -> bool:
        """Whether an answer took too long, as opposed to a failed connection."""
        late = (self._openai.APITimeoutError, self._httpx.TimeoutException, asyncio.TimeoutError)
        return isinstance(exc, late) and not isinstance(exc.__cause__ or exc, self._httpx.ConnectTimeout)

    async def _body(self, messages: Sequence[Message], seed: int, max_tokens: int) -> bytes | None:
        """Return the answer's bytes; None if they exceed the limit."""
        sampling, ask = self._sampling, self._client.chat.completions.with_streaming_response.create
        async with ask(
            model=self._model,
            messages=[dict(message) for message in messages],
            seed=seed,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            extra_body=sampling.extra or None,
            **{self._limit_key: max_tokens},
        ) as response:
            return await _read(response, max_tokens * _BYTES_PER_TOKEN + _ENVELOPE)

    async def _after_refusal(self, exc: Any, question: Question) -> ModelAnswer:
        """Return the answer, or raise the error, for a request that the endpoint does not understand."""
        message = _error_text(exc)
        if _OVERFLOW.search(message) or getattr(exc, "code", None) == "context_length_exceeded":
            return ModelAnswer(failure="context_overflow")
        if "max_completion_tokens" in message and self._limit_key == "max_tokens":
            self._limit_key = "max_completion_tokens"
            return await self._ask_once(question)
        if self._has_answered or question.turn > 1:  # it refuses this conversation, perhaps for the model's words
            return ModelAnswer(failure="malformed", fault=f"a refusal of the request ({message})")
        raise ConfigError(f"{self._url} refuses the request ({message}): change the option that it names") from exc

    def _key_refused(self, exc: Exception) -> ConfigError:
        return ConfigError(
            f"{self._url} refuses the key ({_error_text(exc)}): put a valid one into the variable of --key-variable"
        )

    def _endpoint_error(self, what: str, exc: Exception, remedy: str) -> EndpointError:
        tries = 1 + self._sampling.retries
        why = _error_text(exc) or type(exc).__name__
        return EndpointError(f"{self._url} {what} ({why}, {tries} attempts): {remedy}; the same command goes on")


async def _lists_models(client: Any) -> bool:
    """Whether the reply to a request for the list of models is such a list."""
    async with client.models.with_streaming_response.list() as response:
        body = await _read(response, _LIST_BYTES)
    try:
        listing = json.loads(body or b"")
    except (ValueError, RecursionError):
        return False
    return isinstance(listing, dict) and isinstance(listing.get("data"), list)


async def _read(response: Any, limit: int) -> bytes | None:
    """Return the bytes of a body; None if there are more than `limit`."""
    body = bytearray()
    async for part in response.iter_bytes():
        body += part
        if len(body) > limit:
            return None
    return bytes(body)


def require_client() -> ModuleType:
    """Return the client's package, or raise EnvironmentNotReady."""
    try:
        import openai
    except ImportError as exc:
        raise EnvironmentNotReady(
            f"the package openai cannot be loaded ({exc}): install it (`pip install openai`), or judge saved kernels "
            "with --kernels"
        ) from exc
    return openai


def _error_text(exc: Exception) -> str:
    return " ".join(str(exc).split())[:300]
