# SPDX-License-Identifier: Apache-2.0
"""Reads Python files by other authors as text, or refuses them in a sentence that names the file."""

from __future__ import annotations

from pathlib import Path

from verl_kernel.errors import DataError

MAX_FILE_MB = 4
"""Size above which a file is refused, so that no wrong file is read as a whole."""


class NotText(DataError):
    """A file holds something other than UTF-8 text."""


def read_source(name: str | Path) -> str:
    """Return the text of a source file.

    Raises:
        NotText: the file holds something other than text.
        DataError: it cannot be read, or is too large for a source file.
    """
    path = Path(name)
    if path.is_dir():
        raise DataError(f"{name} is a directory: name a Python file")
    try:
        with path.open("rb") as file:
            data = file.read((MAX_FILE_MB << 20) + 1)
        text = data.decode("utf-8-sig")
    except FileNotFoundError:
        raise DataError(f"{name} does not exist: name a Python file") from None
    except (OSError, ValueError) as exc:
        raise (NotText if isinstance(exc, UnicodeDecodeError) else DataError)(_unreadable(name, exc)) from exc
    if len(data) > MAX_FILE_MB << 20:
        raise DataError(f"{name} is larger than {MAX_FILE_MB} MB: name a Python source file")
    if "\0" in text:
        raise NotText(f"{name} is a binary file: name a Python source file")
    return text


def _unreadable(name: str | Path, exc: Exception) -> str:
    if isinstance(exc, UnicodeDecodeError):
        if b"\0" in exc.object:
            return f"{name} is a binary file: name a Python source file"
        return f"{name} is not UTF-8 text (byte {exc.start}): save it as UTF-8 Python source"
    if isinstance(exc, OSError):
        return f"{name} cannot be read ({exc.strerror}): check the file and its permissions"
    return f"{str(name)!r} is no file name: name a Python file"
