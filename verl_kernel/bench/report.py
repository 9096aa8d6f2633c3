# SPDX-License-Identifier: Apache-2.0
"""Reports a finished run on the terminal and as a page."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import IO

from verl_kernel.bench.page.page import write_page
from verl_kernel.bench.records import BenchTurn, RunHeader, read_turns
from verl_kernel.bench.score_tables import all_tables, cell, conventions, main_table, notes, temperatures_table
from verl_kernel.bench.scores import attempt, baseline, clock, score_run, times, timing_sources
from verl_kernel.errors import StorageError
from verl_kernel.figures.record import Scores
from verl_kernel.figures.scoring import novel_best
from verl_kernel.reporting.screen import screen
from verl_kernel.reward.novelty import read_cold_start


def report_run(
    folder: Path, out: IO[str], as_json: bool = False, everything: bool = False, cold_start: str | None = None
) -> int:
    """Write a run's page and print its main or all scores; return how many answers the gym failed to judge.

    Args:
        folder: the run.
        out: where the scores go.
        as_json: whether they are printed as one object.
        everything: whether all figures are printed.
        cold_start: file of the conversations that programs are compared with; None leaves novelty out.

    Raises:
        DataError: the folder holds no readable run.
        StorageError: the disk is full.
    """
    compared_with = read_cold_start(cold_start)
    header, scores = score_run(folder, cold_start=compared_with)
    turns = read_turns(folder)
    best = None if compared_with is None else novel_best([attempt(turn, compared_with) for turn in turns])
    try:
        page = write_page(folder, compared_with)
    except OSError as exc:
        raise StorageError(
            f"the page of {folder} cannot be written ({exc.strerror}): see to room; answers stay"
        ) from exc
    if as_json:
        novelty = {} if best is None else {"novel_best": best.model_dump(mode="json")}
        summary = {"timing_sources": timing_sources(turns)} | novelty | scores.model_dump(mode="json")
        out.write(json.dumps(summary) + "\n")
        return scores.lost
    _print(header, scores, turns, out, everything)
    if best is not None:
        out.write(f"tasks whose best kernel is novel, of those with a correct one: {cell('novel', best)}\n")
    more = "" if everything else "; all figures: there, or --all"
    out.write(f"answers and verdicts: {folder}, as a page: {page}{more}\n")
    return scores.lost


def report_temperatures(
    runs: Mapping[float, Path], out: IO[str], as_json: bool = False, cold_start: str | None = None
) -> int:
    """Write the pages of runs at several temperatures and print a table of them; return how many answers are unjudged.

    Args:
        runs: folder by temperature.
        out: where the table goes.
        as_json: whether the scores are printed instead, as one object by temperature.
        cold_start: as for `report_run`.

    Raises:
        DataError: a folder holds no readable run.
        StorageError: the disk is full.
    """
    texts = {temperature: StringIO() for temperature in runs}
    lost = sum(report_run(folder, texts[at], as_json=True, cold_start=cold_start) for at, folder in runs.items())
    if as_json:
        out.write(json.dumps({f"{at:g}": json.loads(text.getvalue()) for at, text in texts.items()}) + "\n")
        return lost
    scored = {at: score_run(folder) for at, folder in runs.items()}
    header = next(iter(scored.values()))[0]
    title = f"{header.model} on {header.suite} by temperature, at the last turn"
    screen(out).print(temperatures_table({at: scores for at, (_, scores) in scored.items()}, title))
    for at, folder in runs.items():
        out.write(f"temperature {at:g}: {folder}\n")
    return lost


def _print(header: RunHeader, scores: Scores, turns: Sequence[BenchTurn], out: IO[str], everything: bool) -> None:
    over = baseline(header, turns)
    title = f"{header.model} on {header.suite}, against {over}, {header.device}, {times(turns)}"
    console = screen(out)
    for table in all_tables(scores, title) if everything else [main_table(scores, title)]:
        console.print(table)
    lines = (f"times: {clock(turns)}", *notes(scores), *(conventions() if everything else ()), *_without_program(turns))
    for note in lines:
        console.print(note, markup=False, highlight=False, soft_wrap=True)


def _without_program(turns: Sequence[BenchTurn]) -> Iterator[str]:
    """Yield the reasons for which answers hold no program, if there are any."""
    counts = Counter(turn.failure for turn in turns if turn.failure is not None)
    if total := sum(counts.values()):
        reasons = ", ".join(f"{count} {name}" for name, count in counts.most_common())
        yield f"{total} answer{' holds' if total == 1 else 's hold'} no program: {reasons}"
