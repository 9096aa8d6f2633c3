# SPDX-License-Identifier: Apache-2.0
"""One device, many judges: a clock needs it alone, everything else may share it.

Advisory locks on two files named after the device, so they hold between processes, users and containers that share
a temporary directory, and end with the process that holds them. Whoever wants the device passes the gate first; a
clock keeps the gate closed while it waits, so a stream of sharers cannot starve it.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from verl_kernel.errors import InfraError

_POLL_S = 0.002


class DeviceLock:
    """The lock of one device.

    Args:
        key: what names the device on this machine (its UUID).
        timeout_s: longest wait.
        folder: where the files lie; the temporary directory by default.

    Raises:
        InfraError: not had in time, or the files cannot be opened.
    """

    def __init__(self, key: str, timeout_s: float = 300.0, folder: str | None = None) -> None:
        name = "".join(letter if letter.isalnum() else "_" for letter in key)
        self._base = Path(folder or tempfile.gettempdir()) / f"verl_kernel_{name}"
        self._timeout_s = timeout_s

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Use the device beside others that share it."""
        with self._held("gate", fcntl.LOCK_EX):
            held = self._take("device", fcntl.LOCK_SH)
        try:
            yield
        finally:
            os.close(held)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Have the device alone."""
        with self._held("gate", fcntl.LOCK_EX), self._held("device", fcntl.LOCK_EX):
            yield

    @contextmanager
    def _held(self, part: str, kind: int) -> Iterator[None]:
        fd = self._take(part, kind)
        try:
            yield
        finally:
            os.close(fd)

    def _take(self, part: str, kind: int) -> int:
        fd = _open(f"{self._base}.{part}.lock")
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                fcntl.flock(fd, kind | fcntl.LOCK_NB)
                return fd
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    os.close(fd)
                    raise InfraError(
                        f"a device stayed locked for {self._timeout_s:g} s ({self._base}.{part}.lock): give each "
                        "judge a device of its own or raise its time limits"
                    ) from None
                time.sleep(_POLL_S)


def _open(path: str) -> int:
    """A descriptor of the lock file, which any user may lock, whoever made it."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        with suppress(FileExistsError):
            os.close(os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644))
        return os.open(path, flags)
    except OSError as exc:
        raise InfraError(f"the lock of a device cannot be opened: {exc}") from exc
