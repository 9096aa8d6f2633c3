# SPDX-License-Identifier: Apache-2.0
"""Answers an executing process that asks for the code of a launch, while the judge waits for something else."""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from verl_kernel.env.compilation.description import Place, Unit, function_texts
from verl_kernel.env.compilation.outcome import Refusal
from verl_kernel.env.ipc.channel import Channel, ChannelClosed, ProtocolError
from verl_kernel.env.ipc.code_messages import Code, Failed, Refused
from verl_kernel.env.judge.compiling.code import CodeStore, LaunchCode
from verl_kernel.env.judge.compiling.code_time import CodeTime
from verl_kernel.env.judge.compiling.stopping import Stopping
from verl_kernel.errors import InfraError


class CodeService:
    """A thread that serves one executing process.

    Args:
        store: the judge's code.
        sock: the judge's end of a socket to the process.
        source: the candidate's file.
        spent: the candidate's.
    """

    def __init__(self, store: CodeStore, sock: socket.socket, source: str, spent: CodeTime) -> None:
        self._store, self._channel, self._source, self._spent = store, Channel(sock), source, spent
        self._texts: dict[Place, str] | None = None
        self._stopping = Stopping()
        self.failure: InfraError | None = None
        """Why it could not serve, though no candidate is to blame."""
        self._thread = threading.Thread(target=self._serve, name="code", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End it, and what is being compiled for it (idempotent)."""
        self._stopping.stop()
        with suppress(OSError):
            self._channel.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._channel.close()

    def _serve(self) -> None:
        with suppress(ChannelClosed, ProtocolError):
            while not self._stopping.is_stopped:
                self._send(self._answer(self._channel.recv()))

    def _answer(self, request: Any) -> LaunchCode | Refusal | InfraError:
        """What becomes of a request; one that cannot be read was not written by our code."""
        try:
            if self._texts is None:
                self._texts = function_texts(self._source)
            return self._made(request, self._texts)
        except LookupError as exc:
            return Refusal("LookupError", f"the source has no such function: {exc}", 0)
        except (SyntaxError, TypeError, ValueError, AttributeError, RecursionError) as exc:
            return Refusal(type(exc).__name__, f"the launch cannot be read: {exc}"[:200], 0)
        except InfraError as exc:
            if not self._stopping.is_stopped:
                self.failure = exc
            return exc

    def _made(self, request: Any, texts: Mapping[Place, str]) -> LaunchCode | Refusal:
        unit = Unit.from_json(request["unit"])
        return self._store.code(unit, texts, request["left_out"], self._stopping, self._spent)

    def _send(self, found: LaunchCode | Refusal | InfraError) -> None:
        channel = self._channel
        if isinstance(found, InfraError):
            channel.send(Failed(failed=str(found)))
        elif isinstance(found, Refusal):
            channel.send(Refused(refused=asdict(found)))
        else:
            size = len(found.native)
            channel.send(Code(code=size, name=found.name, signature=found.signature, starts=found.starts))
            channel.send_bytes(found.native)
