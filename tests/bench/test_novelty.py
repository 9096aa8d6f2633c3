# SPDX-License-Identifier: Apache-2.0
"""A bench that is given a cold start says how much of its answers is not in it."""

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.bench.recorded import CODE, OK, WRONG, timed, turn, write_run
from verl_kernel.bench.report import report_run

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
    assert values["novel"]["value"] == pytest.approx(3 / 5)
    assert values["novel (bytes)"]["value"] == pytest.approx(3 / 5)
    assert values["novel (correct)"]["value"] == 0.5
    assert found["novel_best"]["value"] == 0.5
    assert found["novel_best"]["low"] is not None


def test_the_table_and_the_page_show_them(run, corpus):
    text = reported(run, cold_start=corpus)
    assert "novel (correct)" in text
    assert "tasks whose best kernel is novel, of those with a correct one: 0.500" in text
    assert "novel (correct)" in (run / "report.html").read_text()


def test_all_figures_hold_them_too(run, corpus):
    assert "novel (bytes)" in reported(run, everything=True, cold_start=corpus)


def test_without_a_cold_start_nothing_is_said_of_it(run):
    assert "novel" not in reported(run, as_json=True)
    assert "novel" not in reported(run, everything=True)
    assert "novel (" not in (run / "report.html").read_text()


def test_a_run_without_a_right_answer_has_no_best_kernels(tmp_path, corpus):
    run = write_run(tmp_path / "wrong", [turn("t0", 0, 1, WRONG)], tasks=1, samples=1, turns=1)
    assert json.loads(reported(run, as_json=True, cold_start=corpus))["novel_best"]["value"] is None


def test_a_kernel_of_unknown_time_counts_as_right(tmp_path, corpus):
    run = write_run(tmp_path / "untimed", [turn("t0", 0, 1, OK, code=OTHER)], tasks=1, samples=1, turns=1)
    assert json.loads(reported(run, as_json=True, cold_start=corpus))["novel_best"]["value"] == 1.0
