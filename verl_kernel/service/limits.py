# SPDX-License-Identifier: Apache-2.0
"""Limits on requests: the size of their bodies, and the time in which heads and bodies must arrive."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


def limited_heads(most_s: float) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol, which closes a connection that is this long without the whole head of a request.

    uvicorn waits for a head as long as the client likes, and open connections are limited for all clients together.
    """

    class LimitedHeads(AutoHTTPProtocol):  # type: ignore[misc, valid-type]  # uvicorn chooses it at run time
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._begin()

        def data_received(self, data: bytes) -> None:
            before = self.cycle
            super().data_received(data)
            if self.cycle is not before:
                self._end()
            elif self.cycle is None or self.cycle.response_complete:
                self._begin()

        def connection_lost(self, exc: Exception | None) -> None:
            self._end()
            super().connection_lost(exc)

        def _begin(self) -> None:
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(most_s, self.transport.close)

        def _end(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    return LimitedHeads


class BodyLimits:
    """ASGI middleware that reads a body whole before the application sees the request.

    Args:
        app: the application.
        most_bytes: largest body; a larger one is refused with the status 413 before more of it is read.
        most_s: seconds in which it must have arrived; else the status is 408.
    """

    def __init__(self, app: ASGIApp, most_bytes: int, most_s: float) -> None:
        self._app, self._most_bytes, self._most_s = app, most_bytes, most_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            body = await asyncio.wait_for(self._body(receive), self._most_s)
        except asyncio.TimeoutError:  # in Python 3.10 it is no TimeoutError
            await _refuse(send, 408, f"the body did not arrive in {self._most_s:g} s: send smaller requests")
            return
        if body is None:
            await _refuse(
                send,
                413,
                f"the body has more than {self._most_bytes / 1e6:g} MB: send a task once, and fewer candidates",
            )
            return
        await self._app(scope, _body_first(body, receive), send)

    async def _body(self, receive: Receive) -> bytes | None:
        """Return the body; None if it is too large."""
        parts, size = list[bytes](), 0
        while True:
            message = await receive()
            if message["type"] != "http.request":  # the client has gone
                return b"".join(parts)
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._most_bytes:
                return None
            if not message.get("more_body", False):
                return b"".join(parts)


def _body_first(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the body, and then what else comes of the connection."""
    is_sent = False

    async def next_message() -> Message:
        nonlocal is_sent
        if is_sent:
            return await receive()
        is_sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return next_message


async def _refuse(send: Send, status: int, sentence: str) -> None:
    body = json.dumps({"detail": sentence}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
