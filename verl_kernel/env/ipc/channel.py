# SPDX-License-Identifier: Apache-2.0
"""Messages between the gym's processes: length-prefixed JSON over a stream socket, never pickle.

A frame is a 4-byte big-endian length and as many bytes of UTF-8 JSON (one object). Both sides refuse frames longer
than `MAX_FRAME`, so a hostile peer cannot exhaust memory. File descriptors travel with the length prefix (SCM_RIGHTS).
"""

from __future__ import annotations

import json
import select
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any

from verl_kernel.errors import VerlKernelError

MAX_FRAME = 4 << 20
"""Largest accepted frame in bytes."""

_PREFIX = struct.Struct(">I")
Message = dict[str, Any]


class ChannelClosed(VerlKernelError):
    """The peer has closed its end."""


class ProtocolError(VerlKernelError):
    """A frame is malformed or longer than `MAX_FRAME`."""


class Channel:
    """One end of a connection; not thread-safe."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._buffer = bytearray()

    def fileno(self) -> int:
        """Return the socket's descriptor, for `select`."""
        return self.sock.fileno()

    def send(self, message: Mapping[str, object], fds: Sequence[int] = ()) -> None:
        """Send one message, with duplicates of the descriptors `fds`.

        Raises:
            ProtocolError: the message is longer than `MAX_FRAME`.
            ChannelClosed: the peer has closed its end.
        """
        body = json.dumps(message).encode()
        if len(body) > MAX_FRAME:
            raise ProtocolError(f"a message of {len(body)} bytes is above the limit of {MAX_FRAME}")
        try:
            if fds:
                socket.send_fds(self.sock, [_PREFIX.pack(len(body))], list(fds))
            else:
                body = _PREFIX.pack(len(body)) + body
            self.sock.sendall(body)
        except (OSError, TimeoutError) as exc:
            raise ChannelClosed(f"the peer does not take messages: {exc}") from exc

    def feed(self) -> Message | None:
        """Read once from a readable socket; return the message if it is complete, else None.

        This never reads beyond the end of a message: later messages stay in the socket, which remains readable, and
        keep their descriptors.
        """
        self._extend(_receive(self.sock, self._missing()))
        return self._next()

    def recv(self, timeout_s: float | None = None) -> Message:
        """Wait for one message; a `timeout_s` of None waits without limit.

        Raises:
            TimeoutError: no complete message came within `timeout_s` seconds.
            ChannelClosed: the peer has closed its end.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        message = self._next()
        while message is None:
            remaining_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not select.select([self.sock], [], [], remaining_s)[0]:
                raise TimeoutError(f"no message within {timeout_s} s")
            message = self.feed()
        return message

    def recv_with_fds(self, max_fds: int) -> tuple[Message, list[int]]:
        """Wait for one message and its descriptors, which the caller then owns (raises ChannelClosed)."""
        try:
            data, fds, _, _ = socket.recv_fds(self.sock, _PREFIX.size, max_fds)
        except OSError as exc:
            raise ChannelClosed(f"the peer is gone: {exc}") from exc
        self._extend(data)
        return self.recv(), fds

    def send_bytes(self, data: bytes) -> None:
        """Send raw bytes; an earlier message must have announced their number (raises ChannelClosed)."""
        try:
            self.sock.sendall(data)
        except (OSError, TimeoutError) as exc:
            raise ChannelClosed(f"the peer does not take bytes: {exc}") from exc

    def recv_bytes(self, count: int) -> bytes:
        """Wait for `count` raw bytes (raises ChannelClosed)."""
        while len(self._buffer) < count:
            self._extend(_receive(self.sock, count - len(self._buffer)))
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        return data

    def close(self) -> None:
        """Close this end."""
        self.sock.close()

    def _extend(self, data: bytes) -> None:
        if not data:
            raise ChannelClosed("the peer has closed the channel")
        self._buffer += data

    def _missing(self) -> int:
        """Return how many bytes the prefix still lacks or, once it is complete, the message."""
        end = _PREFIX.size
        if len(self._buffer) >= end:
            (length,) = _PREFIX.unpack_from(self._buffer)
            if length > MAX_FRAME:
                raise ProtocolError(f"a frame of {length} bytes is above the limit of {MAX_FRAME}")
            end += length
        return end - len(self._buffer)

    def _next(self) -> Message | None:
        if len(self._buffer) < _PREFIX.size or self._missing():
            return None
        body = bytes(self._buffer[_PREFIX.size :])
        self._buffer.clear()
        return _parse(body)


def pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected stream sockets; programs that are started later inherit neither."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)


def _receive(sock: socket.socket, limit: int) -> bytes:
    try:
        return sock.recv(min(limit, 1 << 16))
    except (ConnectionError, TimeoutError) as exc:
        raise ChannelClosed(f"the peer is gone: {exc}") from exc


def _parse(body: bytes) -> Message:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as exc:
        raise ProtocolError(f"a frame holds no JSON: {type(exc).__name__}") from exc
    if not isinstance(message, dict):
        raise ProtocolError(f"a frame holds a {type(message).__name__} where an object belongs")
    return message
