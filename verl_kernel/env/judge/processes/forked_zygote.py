# SPDX-License-Identifier: Apache-2.0
"""A judge's first zygote, forked from the judge's own process before that holds any secret.

Both need torch, and a copy of it costs 150 MB of private memory and a second of processor time; a fork shares them. It
happens before options, seed and tasks arrive, so the zygote knows what any zygote knows. One that dies later is
replaced by a process of its own (`verl_kernel.env.judge.processes.zygote`): by then the judge has secrets.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from typing import IO, NoReturn

import torch

from verl_kernel.env.backends import resolve_device
from verl_kernel.env.devices import CPU_VARIABLES
from verl_kernel.env.ipc import channel as channels
from verl_kernel.env.sandbox import libc


class ForkedZygote:
    """A forked child with the part of `subprocess.Popen` that its owner uses."""

    def __init__(self, pid: int, sock: socket.socket, errors: IO[bytes]) -> None:
        self.pid, self.sock, self.errors = pid, sock, errors
        self._code: int | None = None

    def poll(self) -> int | None:
        """Exit status, or None while it runs."""
        return self._collect(os.WNOHANG)

    def wait(self) -> int:
        """Wait for its end."""
        code = self._collect(0)
        return 0 if code is None else code

    def _collect(self, flags: int) -> int | None:
        if self._code is None:
            pid, status = os.waitpid(self.pid, flags)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code


def fork_zygote(name: str, serve: Callable[[int, str], None]) -> ForkedZygote | None:
    """Fork a zygote for the device `name`; None where that is a GPU, whose driver does not survive a fork.

    Call it before anything imports triton.

    Args:
        name: of the device.
        serve: what a zygote does with its end of a socket and the name of its device
            (`verl_kernel.env.runner.zygote.serve`).
    """
    if name == "cuda" or (name == "auto" and torch.cuda.is_available()):
        return None
    os.environ.update(CPU_VARIABLES)
    resolve_device("cpu").preload()
    for variable in CPU_VARIABLES:  # the judge itself runs no kernels
        del os.environ[variable]
    gc.collect()
    gc.freeze()
    libc.collapse()  # not in the zygote, which would copy what both share
    ours, theirs = channels.pair()
    errors = tempfile.TemporaryFile()  # noqa: SIM115  closed with the zygote
    pid = os.fork()
    if pid == 0:
        _become_zygote(theirs, errors, lambda fd: serve(fd, "cpu"))
    theirs.close()
    return ForkedZygote(pid, ours, errors)


def _become_zygote(sock: socket.socket, errors: IO[bytes], serve: Callable[[int], None]) -> NoReturn:
    status = 1
    try:
        os.setsid()
        os.environ.update(CPU_VARIABLES)
        nothing = os.open(os.devnull, os.O_RDWR)
        for fd, source in ((0, nothing), (1, nothing), (2, errors.fileno())):
            os.dup2(source, fd)
        keep = sock.detach()
        os.closerange(3, keep)
        os.closerange(keep + 1, os.sysconf("SC_OPEN_MAX"))
        serve(keep)
        status = 0
    except BaseException:  # noqa: BLE001  the judge reads the traceback; this copy must not return to its caller
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(BaseException):
            sys.stderr.flush()
        os._exit(status)
