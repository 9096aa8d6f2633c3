# SPDX-License-Identifier: Apache-2.0
"""What sections find, line by line in one file, so that nothing is lost when a section is killed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

FILE = "findings.jsonl"


class Findings:
    """The findings of one section; each call is on the disk when it returns.

    Args:
        out: the folder of the run.
        section: whose.
    """

    def __init__(self, out: str | Path, section: str) -> None:
        self._path, self._section = Path(out) / FILE, section

    def fact(self, name: str, value: object) -> None:
        """Something as it is."""
        self._write(kind="fact", name=name, value=value)

    def row(self, table: str, **columns: object) -> None:
        """A line of a table."""
        self._write(kind="row", table=table, columns=columns)

    def check(self, what: str, held: bool, detail: str = "") -> None:
        """An expectation and whether it held."""
        self._write(kind="check", what=what, held=held, detail=detail)

    def unknown(self, what: str, why: str = "needs a GPU") -> None:
        """What could not be found out here."""
        self._write(kind="unknown", what=what, why=why)

    def outcome(self, state: str, seconds: float, last_words: str = "") -> None:
        """How the section ended: `done`, `failed`, `stopped` (out of time) or `left out`; said by the driver."""
        self._write(kind="outcome", state=state, seconds=round(seconds, 1), last_words=last_words)

    def _write(self, **line: Any) -> None:
        text = json.dumps({"section": self._section, **line}, default=str)
        with self._path.open("a") as file:
            file.write(f"\n{text}\n")  # a line that a killed process left unfinished ends here
            file.flush()
            os.fsync(file.fileno())


def read(out: str | Path) -> list[dict[str, Any]]:
    """All findings of a run so far, in the order of writing; a line cut by a kill is left out."""
    path, lines = Path(out) / FILE, []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            lines.append(json.loads(line))
        except json.JSONDecodeError:  # empty or half a line
            continue
    return lines
