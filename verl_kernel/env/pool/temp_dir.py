# SPDX-License-Identifier: Apache-2.0
"""A judge's directory for temporary files, which goes with it even where nobody is left to remove it.

Its owner holds a lock on it. A lock that can be had belongs to an owner that was killed: whoever starts the next judge
on the machine removes such directories.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from verl_kernel.errors import EnvironmentNotReady

_PREFIX = "verl_kernel_judge_"


class LockedTempDir:
    """A new directory, locked until it is closed.

    Raises:
        EnvironmentNotReady: the system's directory for temporary files cannot be written.
    """

    def __init__(self) -> None:
        sweep()
        try:
            new = tempfile.mkdtemp(prefix="verl_kernel_new_")
            Path(new).chmod(0o711)  # runners may have another user and must reach the directory of their own in it
            self._lock = os.open(new, os.O_RDONLY | os.O_CLOEXEC)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            self.path = new.replace("verl_kernel_new_", _PREFIX)
            Path(new).rename(self.path)  # under this name other judges look for directories without a lock
        except OSError as exc:
            raise EnvironmentNotReady(
                f"{tempfile.gettempdir()} takes no temporary files ({exc.strerror}): make room, or set TMPDIR"
            ) from exc

    def close(self) -> None:
        """Remove it (idempotent)."""
        if self._lock >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1


def sweep() -> None:
    """Remove the directories of owners that are gone."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):  # still in use, somebody else's, or removed by another sweep
            lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)
