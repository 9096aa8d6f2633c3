# SPDX-License-Identifier: Apache-2.0
"""The directory for a judge's temporary files, which is removed even if its owner is killed.

The owner holds a lock on the directory. If the lock is free, the owner was killed: the start of the next judge on this
machine removes the directory (`sweep`).
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
            Path(new).chmod(0o711)  # runners may have another user id and must reach their scratch directory in it
            self._lock = os.open(new, os.O_RDONLY | os.O_CLOEXEC)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            self.path = new.replace("verl_kernel_new_", _PREFIX)
            Path(new).rename(self.path)  # only after locking: `sweep` removes unlocked directories with this prefix
        except OSError as exc:
            raise EnvironmentNotReady(
                f"{tempfile.gettempdir()} takes no temporary files ({exc.strerror}): make room, or set TMPDIR"
            ) from exc

    def close(self) -> None:
        """Remove the directory (idempotent)."""
        if self._lock >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1


def sweep() -> None:
    """Remove the directories whose owners have died."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):  # locked by its owner, another user's, or removed by another process
            lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)
