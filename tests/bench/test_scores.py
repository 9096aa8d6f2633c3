# SPDX-License-Identifier: Apache-2.0
"""From judged answers to figures: attempts, tables with their conventions, and what is not in a cold start."""

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from tests.bench.recorded import CODE, OK, WRONG, timed, turn, write_run
from verl_kernel.bench.records import SuiteTask, read_run
from verl_kernel.bench.report import report_run
from verl_kernel.bench.score_tables import MAIN, all_tables, cell, conventions, main_table, notes
from verl_kernel.bench.scores import asked_of, attempt, score_run
from verl_kernel.errors import DataError
from verl_kernel.figures.attempts import Asked, AskedTask, Attempt
from verl_kernel.figures.figures import FIGURES
from verl_kernel.figures.record import Estimate
from verl_kernel.figures.scoring import score


def test_a_correct_answer():
    facts = {"level": 3, "family": "map", "prompt_tokens": 5, "completion_tokens": 7}
    assert attempt(turn("a", 1, 2, timed(2.0, roofline_ms=0.1), **facts)) == Attempt(
        "a", 1, 2, "ok", True, True, 2.0, 2.0, pytest.approx(0.2), pytest.approx(1 / (1 + 0.4 / 0.9)), 12, 3, "map"
    )


def test_measured_noise_lowers_what_is_sure():
    measured = timed(1.3, timing_source="cuda_event", speedup_low=1.1)
    assert attempt(turn("a", 0, 1, measured)).sure_speedup == 1.1
    assert attempt(turn("a", 0, 1, timed(1.3, timing_source="cuda_event"))).sure_speedup is None


@pytest.mark.parametrize(
    ("verdict", "status"),
    [
        (timed(2.0, decoy_kernel=True), "decoy"),
        (timed(2.0, task_flags=("constant_output",)), "ok"),
        (WRONG, "incorrect"),
        ({"status": "infra_error"}, "infra_error"),
        (timed(2.0) | {"status": "hacking"}, "hacking"),
    ],
)
def test_what_earns_nothing_has_neither_speedup_nor_roofline(verdict, status):
    found = attempt(turn("a", 0, 1, verdict | {"roofline_ms": 0.1}))
    assert (found.status, found.correct) == (status, False)
    assert found.speedup is found.sure_speedup is found.roofline is found.sol is found.tokens is None


@pytest.mark.parametrize("broken", [0.0, -1.0, float("inf"), float("nan")])
def test_a_broken_number_is_unknown(broken):
    found = attempt(turn("a", 0, 1, {**OK, "speedup": broken, "roofline_ms": broken}))
    assert found.correct
    assert found.speedup is found.sure_speedup is found.roofline is None


def test_tasks_without_any_answer_were_asked_for_too(tmp_path):
    turns, tasks = [turn("a", 0, 1, OK, level=1)], [SuiteTask(task_id=t, task_hash="h", level=2) for t in ("a", "b")]
    header, turns = read_run(write_run(tmp_path, turns, tasks, tasks=3))
    asked = asked_of(header, tasks, turns)
    assert asked.tasks == (AskedTask("a", 2), AskedTask("b", 2), AskedTask("unanswered task 1"))
    assert (asked.samples, asked.turns) == (2, 2)
    _, scores = score_run(tmp_path)
    assert scores.missing == 5
    assert scores.overall.last_turn.values["correct"].value == pytest.approx(1 / 6)
    with pytest.raises(DataError, match="counts 3 tasks and its answers are to 4"):
        asked_of(header, [SuiteTask(task_id=t, task_hash="h") for t in "bcd"], turns)


def scores_of(attempts, asked=None):
    return score(attempts, asked or Asked.of(attempts))


def shown(attempts, asked=None):
    scores = scores_of(attempts, asked)
    console = Console(width=240, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    for table in all_tables(scores, "run [1]"):
        console.print(table)
    return console.export_text(), [*notes(scores), *conventions()]


def attempts_of(tasks=3, samples=2, turns=2):
    return [
        Attempt(f"t{task}", sample, turn, "ok", task > 0, True, 1.5 if task else None, level=task % 2)
        for task in range(tasks)
        for sample in range(samples)
        for turn in range(1, turns + 1)
    ]


def test_every_figure_is_shown_with_its_convention():
    text, beside = shown(attempts_of())
    assert "run [1]" in text
    assert all(name in text for name in FIGURES)
    assert "by turn" in text
    assert "by level" in text
    assert "by family" not in text
    for said in ("pass@2", "0.667 [0.000, 1.000]", "1.500x [1.500, 1.500]"):
        assert said in text
    assert any("KernelBench's fast_p" in note for note in beside)
    assert any("2000 resamples, seed 0" in note for note in beside)


def test_five_figures_are_shown_where_nobody_asks_for_all():
    table = main_table(scores_of(attempts_of(turns=1)), "run")
    assert [column.header for column in table.columns] == ["figure", "score"]
    assert list(table.columns[0].cells) == list(MAIN)
    assert len(MAIN) == 5
    assert set(MAIN) <= set(FIGURES)
    table = main_table(scores_of(attempts_of()), "run")
    assert [column.header for column in table.columns] == ["figure", "last turn", "best of history"]
    assert [next(iter(column.cells)) for column in table.columns[1:]] == ["0.667 [0.000, 1.000]"] * 2


def test_what_did_not_happen_is_not_mentioned():
    counts, brackets = notes(scores_of(attempts_of()))
    assert counts == "3 tasks x 2 samples x 2 turns: 12 answers"
    assert brackets.startswith("brackets: ")


def test_one_task_turn_and_sample_leave_out_what_says_nothing():
    text, _ = shown(attempts_of(tasks=1, samples=1, turns=1))
    assert not any(part in text for part in ("by turn", "by level", "pass@"))
    assert "-" in text  # no correct answer has a speedup


def test_what_is_missing_and_lost_is_said():
    attempts = [Attempt("a", 0, 1, "infra_error", correct=False), Attempt("a", 1, 1, "ok", correct=True)]
    text, beside = shown(attempts, Asked(Asked.of(attempts).tasks, samples=3))
    assert "2 (1, 1)" in text
    assert beside[0].startswith("1 tasks x 3 samples x 1 turns: 2 answers; 1 samples have none and count as failures")
    assert beside[1].startswith("1 answers were lost")
    assert "0.333 of all samples" in beside[1]


def test_cells():
    assert cell("correct", Estimate(value=None)) == "-"
    assert cell("correct", Estimate(value=0.5)) == "0.500"
    assert cell("speedup (all)", Estimate(value=1.25, low=1.0, high=2.0)) == "1.250x [1.000, 2.000]"
    assert cell("correct", Estimate(value=0.1, low=-0.1, high=0.2), signed=True) == "+0.100 [-0.100, +0.200]"


OTHER = CODE.replace("2 * math.pi", "math.exp(2)")


@pytest.fixture
def corpus(tmp_path):
    talk = [{"role": "assistant", "content": f"```python\n{CODE}```"}]
    pq.write_table(pa.table({"messages": [talk]}), tmp_path / "corpus.parquet")
    return str(tmp_path / "corpus.parquet")


@pytest.fixture
def run(tmp_path):
    """Five programs, of which three are novel; the right ones are a new and a known one, and each is a task's best."""
    turns = [
        turn("t0", 0, 1, WRONG, code=OTHER), turn("t0", 1, 1, timed(2.0), code=OTHER),
        turn("t1", 0, 1, timed(3.0)), turn("t1", 1, 1, WRONG, code=OTHER),
        turn("t2", 0, 1, WRONG, code=None), turn("t2", 1, 1, WRONG),
    ]  # fmt: skip
    return write_run(tmp_path / "run", turns, tasks=3, turns=1)


def reported(run, **options):
    out = io.StringIO()
    assert report_run(run, out, **options) == 0
    return out.getvalue()


def test_json_has_the_figures_and_their_intervals(run, corpus):
    found = json.loads(reported(run, as_json=True, cold_start=corpus))
    values = found["overall"]["all_answers"]["values"]
    for name, share in (("novel", 3 / 5), ("novel (bytes)", 3 / 5), ("novel (correct)", 0.5)):
        assert values[name]["value"] == pytest.approx(share)
    assert found["novel_best"]["value"] == 0.5
    assert found["novel_best"]["low"] is not None


def test_the_table_and_the_page_show_them(run, corpus):
    text = reported(run, cold_start=corpus)
    assert "novel (correct)" in text
    assert "tasks whose best kernel is novel, of those with a correct one: 0.500" in text
    assert "novel (correct)" in (run / "report.html").read_text()
    assert "novel (bytes)" in reported(run, everything=True, cold_start=corpus)


def test_without_a_cold_start_nothing_is_said_of_it(run):
    assert "novel" not in reported(run, as_json=True)
    assert "novel" not in reported(run, everything=True)
    assert "novel (" not in (run / "report.html").read_text()


@pytest.mark.parametrize(("verdict", "share"), [(WRONG, None), (OK, 1.0)])
def test_best_kernels_are_right_and_need_no_time(tmp_path, corpus, verdict, share):
    run = write_run(tmp_path / "one", [turn("t0", 0, 1, verdict, code=OTHER)], tasks=1, samples=1, turns=1)
    assert json.loads(reported(run, as_json=True, cold_start=corpus))["novel_best"]["value"] == share
