# SPDX-License-Identifier: Apache-2.0
"""Native code kept in a folder, by what it was made of and for which processor."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

import llvmlite
import llvmlite.binding as llvm

_DIGEST = 32


class ObjectCache:
    """Object files in a folder; whoever writes there is trusted, since what is read is executed.

    Args:
        folder: where they lie; it is made.

    Raises:
        OSError: it cannot be made, or others than this user may write there.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = self._folder.stat()
        if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(f"{folder} holds code that is executed: let its owner alone write there")

    def read(self, written: str) -> bytes | None:
        """What `keep` kept for a module; None if there is nothing, or if the file is not whole."""
        try:
            data = self._path(written).read_bytes()
        except OSError:
            return None
        digest, code = data[:_DIGEST], data[_DIGEST:]
        return code if hashlib.sha256(code).digest() == digest else None

    def keep(self, written: str, code: bytes) -> None:
        """Keep a module's code; a folder that is full or gone is no failure."""
        with suppress(OSError):
            handle, name = tempfile.mkstemp(dir=self._folder)
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(code).digest() + code)
            Path(name).replace(self._path(written))

    def _path(self, written: str) -> Path:
        machine = (llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten(), llvmlite.__version__)
        return self._folder / hashlib.sha256("\n".join((written, *machine)).encode()).hexdigest()
