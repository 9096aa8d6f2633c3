# SPDX-License-Identifier: Apache-2.0
"""Whether a program is novel: not among the answers on which the model was trained first (its cold start).

Programs are compared twice: by bytes, as `extract_code` returns them, and by normal form (`data.families`), which
leaves out names, numbers, comments and formatting. A text that does not parse has no normal form, so its bytes decide.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from verl_kernel.data.families import normal_form
from verl_kernel.data.files import reading
from verl_kernel.env import parse_once
from verl_kernel.errors import DataError
from verl_kernel.reward.extract import extract_code

COLUMN = "messages"
_WANTED = "name the parquet file of the conversations that the model was trained on first"


class Novelty(NamedTuple):
    """What is new about a program; a program that is new by normal form is new by bytes too."""

    form: bool
    """Whether no program of the cold start has its normal form."""
    bytes: bool
    """Whether no program of the cold start has the same bytes."""


class ColdStart:
    """The programs of a cold start, as hashes of their bytes and of their normal forms.

    Args:
        answers: the answers that hold the programs.
    """

    def __init__(self, answers: Iterable[str]) -> None:
        programs = {program for answer in answers if (program := extract_code(answer)) is not None}
        self._texts = {_hash(program) for program in programs}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # else Python would print warnings about escape sequences
            self._forms = {_form(program, ast.parse) for program in programs}

    def novelty(self, program: str | None) -> Novelty:
        """Return what is new about an untrusted program; an answer without a program is not new."""
        if program is None or _hash(program) in self._texts:
            return Novelty(form=False, bytes=False)
        form = _untrusted_form(program)
        return Novelty(form=form is None or form not in self._forms, bytes=True)


@functools.lru_cache(maxsize=2)
def read_cold_start(path: str | None) -> ColdStart | None:
    """Read a cold start, once in a process.

    Args:
        path: parquet file of conversations, with a column `messages`; None for no cold start.

    Raises:
        DataError: the file cannot be read, or has no such column.
    """
    if path is None:
        return None
    check_cold_start(path)
    return ColdStart(_answers(Path(path)))


def check_cold_start(path: str) -> None:
    """Check that a file holds conversations, without reading them.

    Raises:
        DataError: the file cannot be read, or has no column of messages with role and content.
    """
    file = Path(path)
    with reading(file, _WANTED):
        schema = pq.read_schema(file)
    if COLUMN not in schema.names or not _holds_messages(schema.field(COLUMN).type):
        raise DataError(f"{file} has no column `{COLUMN}` of messages with role and content: {_WANTED}")


def _holds_messages(kind: pa.DataType) -> bool:
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    message = kind.value_type if is_list else None
    return (
        message is not None and pa.types.is_struct(message) and {"role", "content"} <= {field.name for field in message}
    )


def _answers(file: Path) -> Iterator[str]:
    with reading(file, _WANTED):
        talks = pq.read_table(file, columns=[COLUMN])[COLUMN].to_pylist()
    for message in (message for talk in talks for message in talk or ()):
        if message["role"] == "assistant" and isinstance(message["content"], str):
            yield message["content"]


@functools.lru_cache(maxsize=4096)
def _untrusted_form(program: str) -> bytes | None:
    """Return the same as `_form`; kept, as a policy repeats programs, and a bench scores each for table and page."""
    return _form(program, parse_once)


def _form(program: str, parse: Callable[[str], ast.Module]) -> bytes | None:
    """Return the hash of a program's normal form; None if the program does not parse."""
    try:
        return _hash("\0".join(normal_form(parse(program))))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", errors="surrogatepass"), digest_size=16).digest()
