# SPDX-License-Identifier: Apache-2.0
"""Several benches as one static page: a table for each suite and way of judging, the best model first."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path

from verl_kernel.bench.page.overview import ScoreRow, headlines, run_facts
from verl_kernel.bench.page.page import templates
from verl_kernel.bench.records import read_answers, read_tasks
from verl_kernel.bench.scores import attempt, clock, run_plan
from verl_kernel.errors import ConfigError
from verl_kernel.figures.bootstrap import CONFIDENCE
from verl_kernel.figures.scoring import score
from verl_kernel.reporting import pages

_SHARED = ("suite", "device", "gym")
"""Facts that say whether the figures of two runs may be compared, besides clock and baseline."""
_OWN = ("asked for", "answers", "sampling", "versions")
Facts = tuple[tuple[str, str], ...]
"""Names and texts."""


def write_board(folders: Sequence[Path], path: Path) -> Path:
    """Write the page of these runs.

    Raises:
        ConfigError: a run is named twice.
        DataError: a folder holds no readable run, or one without a judged answer.
        OSError: the page cannot be written; an older one stays.
    """
    tables: dict[Facts, list[tuple[float, ScoreRow]]] = {}
    columns: list[str] = []
    for number, folder in enumerate(folders):
        if folder.resolve() in [other.resolve() for other in folders[:number]]:
            raise ConfigError(f"{folder} is named twice: name each run once")
        columns, shared, correct, row = _row(folder)
        tables.setdefault(shared, []).append((-correct, row))
    page = (
        templates()
        .get_template("board.html")
        .render(
            tables=[
                (dict(shared), [row for _, row in sorted(rows, key=itemgetter(0))]) for shared, rows in tables.items()
            ],
            columns=columns,
            clock="; ".join(sorted({dict(shared)["times"] for shared in tables})),
            facts={"small figures": f"{CONFIDENCE:.0%} bootstrap intervals over tasks"},
        )
    )
    return pages.write_page(path, page)


def _row(folder: Path) -> tuple[list[str], Facts, float, ScoreRow]:
    """Return a run's columns, the facts that its table is about, its correct last answers, and its row."""
    header, turns = read_answers(folder)
    scores = score([attempt(turn) for turn in turns], run_plan(header, read_tasks(folder), turns))
    facts, figures = run_facts(header, scores, turns), headlines(scores)
    shared = {key: facts[key] for key in _SHARED} | {"speedup over": header.baseline, "times": clock(turns)}
    row = ScoreRow(
        f"{header.model} ({folder.resolve().name}, {header.started[:10]})",
        "; ".join(facts[key] for key in _OWN if key in facts),
        tuple(figure.cells[0] for figure in figures),
    )
    correct = scores.overall.last_turn.values["correct"].value or 0.0
    columns = [f"{figure.name}, {figure.meaning}".removesuffix(" of history") for figure in figures]
    return columns, tuple(shared.items()), correct, row
