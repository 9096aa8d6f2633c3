# SPDX-License-Identifier: Apache-2.0
"""Writes a kernel as an importable file with a comment block about its origin."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from verl_kernel.errors import DataError
from verl_kernel.figures.best import Rank, rank
from verl_kernel.figures.record import Record
from verl_kernel.files import replacing

_TITLE = "# A Triton kernel that verl-kernel has verified."
_ORIGIN = "# Where it comes from:"
_LINE = re.compile(r"#   \w+: .*")
Written = Literal["written", "replaced", "kept", "left alone"]


class Provenance(Record):
    """The origin of a kernel; unknown facts are null."""

    task: str
    task_hash: str | None = None
    """`Task.text_hash`: of the reference's text without comments and white space."""
    run: str
    """Name of the run's folder."""
    model: str | None = None
    speedup: float | None = None
    sure_speedup: float | None = None
    """Lower end of the speedup's interval."""
    timing_source: str | None = None
    """`cuda_event` (measured) or `simulated`."""
    reference_mode: str | None = None
    device: str | None = None
    versions: str | None = None
    sample: str | None = None
    turn: int
    date: str
    """Date of the run."""
    step: int | None = None
    """Step of a training run."""

    @property
    def rank(self) -> Rank:
        """Return the kernel's key among the kernels of its task; the best one has the highest."""
        return rank(self.sure_speedup, self.speedup)

    def comment(self) -> str:
        """Return the facts as a comment block; every value is JSON on a separate line."""
        lines = (f"#   {key}: {json.dumps(value)}" for key, value in self if value is not None)
        return "\n".join([_TITLE, _ORIGIN, *lines, ""])

    @classmethod
    def read(cls, text: str) -> Provenance | None:
        """Read the comment block at the head of a file; None for any other file."""
        title, _, rest = text.partition("\n")
        if title != _TITLE:
            return None
        found: dict[str, Any] = {}
        try:
            for line in takewhile(_LINE.fullmatch, rest.split("\n")[1:]):
                key, _, value = line.removeprefix("#   ").partition(": ")
                found[key] = json.loads(value)
            return cls.model_validate(found)
        except (json.JSONDecodeError, ValidationError):
            return None


@dataclass(frozen=True)
class KernelFile:
    """The outcome for one kernel."""

    path: Path
    what: Written
    why: str


def write_kernel(folder: Path, provenance: Provenance, code: str) -> KernelFile:
    """Write `<task>.py`, unless the existing file is as good or its quality is unknown.

    Raises:
        DataError: the folder or the file cannot be written.
    """
    try:
        path = _place(folder, provenance.task)
        what, why = _write(path, provenance, code)
    except OSError as exc:
        name = file_name(provenance.task)
        raise DataError(f"--out {folder}: {name} cannot be written ({exc}): name another folder") from None
    return KernelFile(path, what, why)


def _write(path: Path, provenance: Provenance, code: str) -> tuple[Written, str]:
    try:
        text = f"{provenance.comment()}\n{code.rstrip()}\n".encode()
    except UnicodeEncodeError:
        return "left alone", "its text is no valid Unicode"
    what, why = _decide(_text(path), provenance)
    if what in ("written", "replaced"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as part:
            part.write_bytes(text)
    return what, why


def file_name(task: str, is_taken: bool = False) -> str:
    """Return the task's name with `_` for invalid characters; with a hash where another task has that file."""
    plain = re.sub(r"[^A-Za-z0-9_]", "_", task)[:100] or "task"
    return f"{plain}_{hashlib.sha256(task.encode()).hexdigest()[:8]}.py" if is_taken else f"{plain}.py"


def _place(folder: Path, task: str) -> Path:
    known = Provenance.read(_text(folder / file_name(task)) or "")
    return folder / file_name(task, is_taken=known is not None and known.task != task)


def _text(path: Path) -> str | None:
    """Return the text of a file; None if there is none."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return None


def _decide(text: str | None, new: Provenance) -> tuple[Written, str]:
    """Decide what to do about a file with this text, and say why."""
    if text is None:
        return "written", ""
    known = Provenance.read(text)
    if known is None:
        return "left alone", "the file there is none of this command's"
    if known.task_hash != new.task_hash:
        return "left alone", "the file there is for another version of the task"
    if known.timing_source != new.timing_source:
        return "left alone", f"the speedup there is by another clock ({known.timing_source})"
    if new.rank > known.rank:
        return "replaced", f"{_speedup(known)} before"
    return "kept", f"{_speedup(known)} there, not less than {_speedup(new)}"


def _speedup(one: Provenance) -> str:
    known = one.speedup if one.sure_speedup is None else one.sure_speedup
    return "unknown speedup" if known is None else f"{known:.2f}x"
