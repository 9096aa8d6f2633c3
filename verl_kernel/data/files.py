# SPDX-License-Identifier: Apache-2.0
"""Files that commands read and write: errors in our own words, and files that appear only when they are complete."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from verl_kernel.errors import ConfigError, DataError, StorageError, VerlKernelError
from verl_kernel.files import replacing

_MAGIC = b"PAR1"
"""The first and the last four bytes of a parquet file."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def reading(path: Path, advice: str = "") -> Iterator[None]:
    """Report errors of reading a parquet file in our own words.

    Args:
        path: the file.
        advice: what to name or to fetch instead; ends the error's sentence.

    Raises:
        DataError: the file cannot be read; the message says what it is instead, and the remedy.
    """
    try:
        yield
    except VerlKernelError:
        raise
    except (pa.ArrowException, OSError, ValueError) as exc:
        what, remedy = _what_is_wrong(path, exc)
        raise DataError(f"{path} {what}: {advice or remedy}") from exc


def column_names(path: Path, advice: str = "") -> list[str]:
    """Return the names of a parquet file's columns (raises as `reading`)."""
    with reading(path, advice):
        return list(pq.read_schema(path).names)


def _what_is_wrong(path: Path, exc: Exception) -> tuple[str, str]:
    advice = "name a parquet file of tasks, as `verl-kernel data rows` or `verl-kernel data quickstart` writes one"
    try:
        with path.open("rb") as file:
            first = file.read(len(_MAGIC))
            file.seek(max(0, file.seek(0, os.SEEK_END) - len(_MAGIC)))
            last = file.read()
    except OSError as error:
        return f"cannot be read ({error.strerror or error})", "see to its permissions, or name another file"
    if not first:
        return "is empty", "make or fetch it anew"
    if first != _MAGIC:
        return "is no parquet file", advice
    return f"is {'damaged' if last == _MAGIC else 'cut off'}", "make or fetch it anew"


@contextmanager
def writing(path: Path, option: str = "--out") -> Iterator[Path]:
    """Yield a file next to `path` to write into, which replaces `path` once the block has ended without an error.

    Args:
        path: the final file; its folder is created if it is missing.
        option: command-line option that names the file.

    Raises:
        ConfigError: the file cannot exist.
        StorageError: the disk is full.
    """
    if path.is_dir():
        raise ConfigError(f"{option} {path} is a folder: name a file in it")
    if file := _file_at(path.parent):
        raise ConfigError(f"{option} {path} cannot be written, {file} is a file: name another folder")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as part:
            yield part
    except OSError as exc:
        raise _write_error(exc, path, option) from exc


def check_file(path: Path, option: str = "--out") -> None:
    """Refuse, before any work, a file that cannot be written (raises as `writing`); create its folder."""
    with suppress(_NotWrittenYet), writing(path, option) as part:
        part.touch()
        raise _NotWrittenYet


class _NotWrittenYet(Exception):
    pass


@contextmanager
def writing_folder(path: Path, option: str = "--out") -> Iterator[None]:
    """Create a folder to write into if it is missing; errors that concern no file in it stay unchanged.

    Raises:
        ConfigError: the folder cannot exist, or a file in it cannot be written.
        StorageError: the disk is full.
    """
    if file := _file_at(path):
        raise ConfigError(f"{option} {path} cannot be a folder, {file} is a file: name another folder")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise _write_error(exc, path, option) from exc
    try:
        yield
    except OSError as exc:
        name = exc.filename if isinstance(exc.filename, str) else ""
        if _errno(exc) in _FULL or path.absolute() in Path(name).absolute().parents:
            raise _write_error(exc, path, option) from exc
        raise


def _file_at(folder: Path) -> Path | None:
    """Return the part of a path, or the path, that should be a folder but is none."""
    return next((path for path in (folder, *folder.absolute().parents) if path.exists() and not path.is_dir()), None)


def _write_error(exc: OSError, path: Path, option: str) -> ConfigError | StorageError:
    """Return an error of writing in our own words."""
    number = _errno(exc)
    reason = os.strerror(number) if number else " ".join(str(exc).split())[:200]
    if number in _FULL:
        return StorageError(
            f"{path} cannot be written ({reason}): free space there, or name another place with {option}"
        )
    return ConfigError(f"{option} {path} cannot be written ({reason}): name another place")


def _errno(exc: OSError) -> int | None:
    """Return the number of an error; pyarrow states it only in the text."""
    match = re.search(r"errno (\d+)", str(exc), re.IGNORECASE)
    return exc.errno or (int(match[1]) if match else None)


def read_yaml(path: Path, advice: str) -> dict[str, Any]:
    """Return the keys and values of a YAML file.

    Args:
        path: the file.
        advice: what to name or to write instead; ends the error's sentence.

    Raises:
        ConfigError: the file cannot be read, is not YAML, or holds no keys; the message says where and what is wanted.
    """
    try:
        node = YAML(typ="safe", pure=True).load(path)
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist: {advice}") from None
    except OSError as exc:
        raise ConfigError(f"{path} cannot be read ({exc.strerror or exc}): {advice}") from exc
    except (ValueError, YAMLError) as exc:
        raise ConfigError(f"{path} is no valid YAML ({_reason(exc)}): {advice}") from exc
    if not isinstance(node, dict):
        raise ConfigError(f"{path} holds no keys: {advice}")
    return {str(key): value for key, value in node.items()}


def value_of(text: str) -> Any:
    """Return the value that a text is in YAML, as in `--reward scale=1.0`; the text itself where it is none."""
    try:
        return YAML(typ="safe", pure=True).load(text)
    except (ValueError, YAMLError):
        return text


def _reason(exc: Exception) -> str:
    """Return what is wrong and in which line, without the lines that YAML quotes from the file."""
    if isinstance(exc, MarkedYAMLError) and exc.problem_mark is not None:
        return f"line {exc.problem_mark.line + 1}: {exc.problem}"
    return str(exc).strip().partition("\n")[0][:200]
