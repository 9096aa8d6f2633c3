# SPDX-License-Identifier: Apache-2.0
"""The figures on the pages about evaluation are those of the answers in data/bench/quickstart."""

from pathlib import Path

import pytest

from benchmarks import kept_runs
from tests.bench.page.runs import generated, header, write_run
from verl_kernel.bench.score_tables import cell
from verl_kernel.bench.scores import score_run

DOCS = Path(__file__).parents[2] / "docs"
KEPT = kept_runs.KEPT
FAST = "fast@1.2"


def test_the_table_is_made_of_the_answers():
    assert (KEPT / "table.md").read_text() == kept_runs.table()


def test_what_is_kept_gives_the_figures_of_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(kept_runs, "KEPT", tmp_path / "kept")
    run = write_run(tmp_path / "run", generated(tasks=3, samples=2, turns=2), header(3, turns=2))
    kept_runs.keep(run, "short")
    whole, short = score_run(run)[1], score_run(tmp_path / "kept" / "short")[1]
    for name in ("correct", FAST, "speedup (all)", "hacking"):
        figures = [[one.last_turn.values[name] for one in scores.by_turn] for scores in (whole, short)]
        assert figures[0] == figures[1]
    assert whole.passes == short.passes
    assert [one.tokens for one in whole.by_turn] == [one.tokens for one in short.by_turn]
    sizes = [(folder / "turns.jsonl").stat().st_size for folder in (run, tmp_path / "kept" / "short")]
    assert sizes[1] < sizes[0] / 5


def test_the_note_on_the_bench_has_the_rows_of_its_runs():
    page = (DOCS / "notes" / "bench.md").read_text()
    parts = (KEPT / "table.md").read_text().split("\n## ")[1:]
    by_run = {
        part.partition("\n")[0]: [row for row in part.splitlines() if row[:3] in ("| 1", "| 2", "| 3")]
        for part in parts
    }
    rows = [row for name in PAGES for row in by_run[name]]
    assert len(rows) == 5 * len(PAGES)
    assert [row for row in rows if row not in page] == []


PAGES = ("three_turns", "three_turns_trained")
"""Runs whose rows stand in docs/notes/bench.md."""


@pytest.mark.slow
@pytest.mark.parametrize(("turn", "k"), [(1, 1), (2, 4), (4, 8), (8, 16)])
def test_the_page_compares_turns_with_first_answers_by_tokens(turn, k):
    _, turns = score_run(KEPT / "eight_turns")
    _, first = score_run(KEPT / "first_answers")
    views, tokens = turns.by_turn[turn - 1], first.by_turn[0].tokens
    (passes,) = (one for one in first.passes if (one.k, one.criterion, one.view) == (k, FAST, "last turn"))
    found = f"{cell(FAST, views.best_of_history.values[FAST])} | {views.tokens:.0f}"
    row = f"| {turn} | {found} | {k} | {cell('pass', passes.estimate)} | {k * tokens:.0f} |"
    assert row in (DOCS / "notes" / "test_time_scaling.md").read_text(), row
