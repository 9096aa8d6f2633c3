# SPDX-License-Identifier: Apache-2.0
"""What a finished run says on the terminal and as a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from rich.console import Console

from verl_kernel.bench.attempts import score_run
from verl_kernel.bench.page.page import write_page
from verl_kernel.bench.records import BenchTurn
from verl_kernel.bench.run_files import read_turns
from verl_kernel.bench.score_tables import notes, tables
from verl_kernel.errors import StorageError

_WIDTH = 160
"""Columns where the output is no terminal."""


def report_run(folder: Path, out: IO[str], as_json: bool = False) -> int:
    """Write a run's page and print its scores; returns how many answers the gym lost.

    Raises:
        DataError: the folder holds no run that can be read.
        StorageError: there is no room for the page.
    """
    header, scores = score_run(folder)
    turns = read_turns(folder)
    try:
        page = write_page(folder)
    except OSError as exc:
        raise StorageError(
            f"the page of {folder} cannot be written ({exc.strerror}): see to room; answers stay"
        ) from exc
    if as_json:
        out.write(scores.model_dump_json() + "\n")
        return scores.lost
    console = Console(file=out, width=None if out.isatty() else _WIDTH)
    for table in tables(scores, f"{header.model} on {header.suite}, against {header.baseline}, {header.device}"):
        console.print(table)
    for note in (*notes(scores), *_without_program(turns), f"answers and verdicts: {folder}, as a page: {page}"):
        console.print(note, markup=False, highlight=False, soft_wrap=True)
    return scores.lost


def _without_program(turns: Sequence[BenchTurn]) -> Iterator[str]:
    """Why answers hold no program, as far as some do not."""
    counts = Counter(one.failure for one in turns if one.failure is not None)
    if total := sum(counts.values()):
        reasons = ", ".join(f"{count} {name}" for name, count in counts.most_common())
        yield f"{total} answer{' holds' if total == 1 else 's hold'} no program: {reasons}"
