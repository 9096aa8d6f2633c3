# SPDX-License-Identifier: Apache-2.0
"""The page of several benches, from kept runs and from written ones."""

import html
import re
from pathlib import Path

from benchmarks.kept_runs import KEPT
from tests.bench.page.runs import HOSTILE, answer, header, right, write_run
from tests.commands.lines import invoked
from verl_kernel.bench.page.board import write_board

RUNS = ("first_answers", "three_turns", "three_turns_trained")


def sections(page: Path) -> list[str]:
    """The page's tables with what stands above them, as text."""
    parts = page.read_text().split("<section>")[1:]
    return [" ".join(html.unescape(re.sub(r"<[^>]+>", " ", part)).split()) for part in parts]


def test_kept_runs_are_compared_where_they_were_judged_alike(tmp_path):
    page = tmp_path / "pages" / "board.html"
    said = invoked("bench-board", *(KEPT / name for name in RUNS), "--out", page).output
    assert said == f"board: {page}\n"
    first, turns = sections(page)
    assert "correctness_trials 2" in first
    assert "model (first_answers, 2026-11-24)" in first
    assert "model (three_turns, " not in first
    assert turns.index("trained_model (three_turns_trained, ") < turns.index("model (three_turns, ")
    assert "71% 61 to 80" in turns
    assert "4 samples a task, 3 turns each; 384 judged" in turns
    assert "verl_kernel 0.1.0, torch 2.13.0+cpu, triton 3.7.1" in turns


def test_a_run_that_is_named_twice_is_refused(tmp_path):
    run = KEPT / RUNS[0]
    said = invoked("bench-board", run, f"{run}/../{run.name}", "--out", tmp_path / "board.html", exit_code=2).output
    assert f"{run.name} is named twice: name each run once" in said


def test_suites_have_a_table_each_and_names_are_text(tmp_path):
    runs = [
        write_run(tmp_path / "one", [right(speedup=2.0)], header(1, model=HOSTILE, turns=1)),
        write_run(tmp_path / "two", [answer()], header(1, suite="other", suite_hash="s2", turns=1)),
    ]
    page = write_board(runs, tmp_path / "board.html")
    assert [part.partition(",")[0] for part in sections(page)] == ["cpu", "other"]
    assert HOSTILE not in page.read_text()
    assert html.escape("</script></style>") in page.read_text()
