# SPDX-License-Identifier: Apache-2.0
"""A process of this package that serves the judge over a socket."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from typing import IO

from verl_kernel.env.ipc import channel as channels
from verl_kernel.env.ipc.channel import Channel
from verl_kernel.env.sandbox.child_environment import child_environment


class ForkedZygote:
    """A forked child, with the methods of `subprocess.Popen` that its owner uses."""

    def __init__(self, pid: int, sock: socket.socket, errors: IO[bytes]) -> None:
        self.pid, self.sock, self.errors = pid, sock, errors
        self._code: int | None = None

    def poll(self) -> int | None:
        """Exit status, or None while it runs."""
        return self._collect(os.WNOHANG)

    def wait(self) -> int:
        """Wait for its end; return its exit status."""
        code = self._collect(0)
        return 0 if code is None else code

    def _collect(self, flags: int) -> int | None:
        if self._code is None:
            pid, status = os.waitpid(self.pid, flags)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code


class ServerProcess:
    """A child process with a channel to it, and what it has written to stderr."""

    def __init__(self, child: subprocess.Popen[bytes] | ForkedZygote, channel: Channel, errors: IO[bytes]) -> None:
        self.child, self.channel, self._errors = child, channel, errors

    @classmethod
    def start(cls, module: str, *arguments: str, variables: Mapping[str, str]) -> ServerProcess:
        """Run a module as a program; it gets its end of a socket, and the arguments after it."""
        ours, theirs = channels.pair()
        errors = tempfile.TemporaryFile()  # noqa: SIM115  closed with the process
        child = subprocess.Popen(
            [sys.executable, "-m", module, str(theirs.fileno()), *arguments],
            pass_fds=[theirs.fileno()],
            env={**child_environment(), **variables},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )
        theirs.close()
        return cls(child, Channel(ours), errors)

    def last_words(self) -> str:
        """Return the last line that it wrote to stderr."""
        self._errors.seek(0)
        return self._errors.read()[-500:].decode(errors="replace").strip().rpartition("\n")[2]

    def close(self) -> None:
        """Kill it, with all processes of its session."""
        self.channel.close()
        with suppress(ProcessLookupError):
            os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()  # else it stays a zombie of the judge
        self._errors.close()
