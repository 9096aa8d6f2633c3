# SPDX-License-Identifier: Apache-2.0
"""The consoles to which commands print their tables."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import IO, Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

Item = TypeVar("Item")

_WIDE = 1000
"""Width where the output is no terminal: large, so that nothing is cut for a program that reads the output."""


class _Screen(Console):
    """A console that folds names which a narrow terminal has no room for: cut, `fast@1` and `fast@1.2` look alike."""

    def print(self, *objects: Any, **settings: Any) -> None:
        for column in (column for each in objects if isinstance(each, Table) for column in each.columns):
            if not column.no_wrap:
                column.overflow = "fold"
        super().print(*objects, **settings)


def screen(file: IO[str] | None = None, *, stderr: bool = False) -> Console:
    """Return a console as wide as the terminal or `COLUMNS`; where output goes elsewhere, as wide as needed."""
    console = _Screen(file=file, stderr=stderr)
    if console.is_terminal or "COLUMNS" in os.environ:
        return console
    return _Screen(file=file, stderr=stderr, width=_WIDE)


def counted(number: int, what: str) -> str:
    """Return a number with its noun: `1 step`, `2 steps`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def with_bar(items: Iterable[Item], what: str, total: int) -> Iterator[Item]:
    """Yield the items, with a progress bar on standard error if that is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        yield from progress.track(items, total=total, description=what)
