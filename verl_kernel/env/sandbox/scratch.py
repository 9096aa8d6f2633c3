# SPDX-License-Identifier: Apache-2.0
"""A candidate's private directory: created, measured while the candidate fills it, and removed in any state."""

from __future__ import annotations

import itertools
import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path

from verl_kernel.errors import InfraError

CANDIDATE_FILE = "kernel.py"
"""Name of the file that holds a candidate's source, in its directory."""
ENTRY_BYTES = 16 << 10
"""Least bytes that a file or directory counts as, so that a limit of bytes also limits their number."""
_DEEPEST = 64


class Scratch:
    """A temporary directory that holds the candidate's file.

    Raises:
        InfraError: the directory cannot be created.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        try:
            self.path = tempfile.mkdtemp(prefix="verl_kernel_")
            self._write()
        except OSError as exc:
            raise InfraError(f"no scratch directory for a candidate: {exc}") from exc

    def renew(self) -> None:
        """Restore its first state under the same name, so that no file of one runner reaches the next."""
        remove(self.path)
        try:
            os.mkdir(self.path, 0o700)
            self._write()
        except OSError as exc:
            raise InfraError(f"no second scratch directory for a candidate: {exc}") from exc

    def close(self) -> None:
        """Remove the directory."""
        remove(self.path)

    def _write(self) -> None:
        (Path(self.path) / CANDIDATE_FILE).write_bytes(self.source.encode("utf-8", "surrogatepass"))


def used_bytes(path: str, limit: int) -> int:
    """Return the bytes on disk beneath a directory that a process may be filling; above `limit` once that is certain.

    A part that cannot be read, or lies deeper than any honest program nests folders, counts as too much.
    """
    used, waiting = 0, [(path, 0)]
    while waiting and used <= limit:
        directory, depth = waiting.pop()
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    used += max(ENTRY_BYTES, 512 * entry.stat(follow_symlinks=False).st_blocks)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append((entry.path, depth + 1))
                    if used > limit or depth > _DEEPEST:
                        return limit + 1
        except PermissionError:
            return limit + 1
        except OSError:  # removed meanwhile
            continue
    return used


def remove(path: str) -> None:
    """Delete a directory tree of any depth and any modes: nested folders are moved to the top first.

    Entries that cannot be deleted stay, without an error.
    """
    mark, numbers, waiting = secrets.token_hex(8), itertools.count(), [path]
    while waiting:
        directory = waiting.pop()
        with suppress(OSError):
            os.chmod(directory, 0o700)
            for entry in list(os.scandir(directory)):
                with suppress(OSError):
                    if not entry.is_dir(follow_symlinks=False):
                        os.unlink(entry.path)
                        continue
                    os.chmod(entry.path, 0o700)
                    top = f"{path}/{mark}{next(numbers)}"
                    os.rename(entry.path, top)
                    waiting.append(top)
            if directory != path:
                os.rmdir(directory)
    with suppress(OSError):
        os.rmdir(path)
