# SPDX-License-Identifier: Apache-2.0
"""Where commands print their tables."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import IO, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

Item = TypeVar("Item")

_WIDE = 1000
"""Columns where the output is no terminal: tables take what they need, and nothing is cut for a program that reads."""


def screen(file: IO[str] | None = None, *, stderr: bool = False) -> Console:
    """A console as wide as the terminal, or as `COLUMNS` says; as wide as it takes where output goes elsewhere."""
    console = Console(file=file, stderr=stderr)
    if console.is_terminal or "COLUMNS" in os.environ:
        return console
    return Console(file=file, stderr=stderr, width=_WIDE)


def counted(number: int, what: str) -> str:
    """A number of things: `1 step`, `2 steps`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def with_bar(items: Iterable[Item], what: str, total: int) -> Iterator[Item]:
    """The items, beside a bar of how many there are; it is on standard error, and only where that is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        yield from progress.track(items, total=total, description=what)
