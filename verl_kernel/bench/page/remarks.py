# SPDX-License-Identifier: Apache-2.0
"""Finds the lines of a kernel that a verdict mentions, and its remarks on them.

The gym names lines as numbers in memory findings, as `line 7, in kernel f: ...` at the start of a message, and as
`line 7, in f: text` for each frame of a traceback. Python writes `(kernel.py, line 7)` after a syntax error, and
Triton's compiler writes `at 3:8:` before its errors, counted from the kernel's `def`. The candidate itself may have
raised the message, so a remark is an unverified claim and is shown as plain text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from verl_kernel.env import EvalError, EvalResult

Kind = Literal["memory", "error", "caller", "note"]
_PLACE = re.compile(r"line (\d{1,7})(?:, in (?:kernel )?([^:\n]{1,300}))?: ")
_FRAME = re.compile(r"^line (\d{1,7}), in [^:\n]{1,300}: ", re.M)
_IN_KERNEL = re.compile(r"at (\d{1,7}):\d{1,7}:")
_DEFINED = re.compile(r"^def (\w{1,200})\(", re.M)
_SYNTAX = re.compile(r" \(kernel\.py, line (\d{1,7})\)$")
_CARET = re.compile(r"\n[ \t]{0,300}\^\n")
_TRUE_SIZE = re.compile(r"line (\d{1,7}) ")
_NEWLINE = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True)
class Remark:
    """A verdict's remark on a line."""

    line: int
    """Line number in the candidate's file, from 1."""
    kind: Kind
    """`memory`: a finding of the memory checks; `error`: the failing line; `caller`: a line that led to it; `note`."""
    text: str


def source_lines(code: str) -> list[str]:
    """Return the lines of a source as Python counts them, without empty lines at its end."""
    return _NEWLINE.split(code.rstrip("\r\n"))


def remarks(result: EvalResult, code: str) -> list[Remark]:
    """Return a verdict's remarks on lines of the source, sorted and without repetition; never beyond the last line."""
    found = [*_memory(result), *_error(result.error, code), *_true_size(result)]
    last, end = len(source_lines(code)), len(_NEWLINE.split(code)) + 1
    placed = [Remark(min(one.line, last), one.kind, one.text) for one in found if 1 <= one.line <= end]
    unique = {(one.line, one.text): one for one in reversed(placed)}
    return sorted(reversed(unique.values()), key=lambda one: one.line)


def _memory(result: EvalResult) -> Iterator[Remark]:
    for finding in result.memory_findings or ():
        if finding.line is not None:
            yield Remark(finding.line, "memory", f"{finding.kind}: {finding.message}")


def _error(error: EvalError | None, code: str) -> Iterator[Remark]:
    if error is None:
        return
    frames = [int(match[1]) for match in _FRAME.finditer(error.traceback_tail or "")]
    line, text = _named(error.message, code)
    if line is None and frames:
        line = frames.pop()
    if line is not None:
        yield Remark(line, "error", f"{error.type}: {text}")
    yield from (Remark(frame, "caller", "on the way to the error") for frame in frames if frame != line)


def _named(message: str, code: str) -> tuple[int | None, str]:
    """Return the line that a message names, and the rest of the message."""
    if match := _PLACE.match(message):
        return int(match[1]), message[match.end() :]
    if match := _SYNTAX.search(message):
        return int(match[1]), message[: match.start()]
    if match := _IN_KERNEL.match(message):
        return _in_kernel(int(match[1]), message, code), _CARET.split(message)[-1]
    return None, message


def _in_kernel(offset: int, message: str, code: str) -> int | None:
    """Convert a line within a kernel to a line of the file; None if two kernels have its name."""
    quoted = _DEFINED.search(message)
    if quoted is None:
        return None
    starts = [number for number, line in enumerate(source_lines(code), 1) if line.startswith(quoted[0])]
    return starts[0] + offset - 1 if len(starts) == 1 else None


def _true_size(result: EvalResult) -> Iterator[Remark]:
    unknown = result.true_size.unknown if result.true_size is not None else None
    if unknown and (match := _TRUE_SIZE.match(unknown)):
        yield Remark(int(match[1]), "note", f"no time: {unknown}")
