# SPDX-License-Identifier: Apache-2.0
"""A run's folder is read, or refused in one sentence."""

import json

import pytest

from tests.bench.recorded import HEADER, OK, WRONG, turn, write_run
from verl_kernel.bench.records import RunHeader, SuiteTask, read_run, read_tasks
from verl_kernel.errors import DataError

TURNS = [turn("a", 0, 1, OK), turn("a", 0, 2, WRONG), turn("b", 1, 1, OK)]


def test_what_was_written_is_read(tmp_path):
    tasks = [SuiteTask(task_id="a", task_hash="h", level=1, family="map"), SuiteTask(task_id="b", task_hash="i")]
    folder = write_run(tmp_path / "run", TURNS, tasks)
    assert read_run(folder) == (RunHeader(**HEADER), TURNS)
    assert read_tasks(folder) == tasks
    assert read_tasks(write_run(tmp_path / "other", TURNS)) == []


def test_a_run_that_was_killed_at_once_has_no_answers(tmp_path):
    folder = write_run(tmp_path, [])
    (folder / "turns.jsonl").unlink()
    assert read_run(folder)[1] == []


def test_a_cut_last_line_is_left_out(tmp_path):
    folder = write_run(tmp_path, TURNS)
    whole = (folder / "turns.jsonl").read_bytes()
    for length in (len(whole) - 1, len(whole) - 40):
        (folder / "turns.jsonl").write_bytes(whole[:length])
        assert read_run(folder)[1] == TURNS[:2]


def test_an_answer_that_was_judged_again_counts_once(tmp_path):
    lost = turn("a", 0, 1, {"status": "infra_error"})
    assert read_run(write_run(tmp_path, [lost, *TURNS]))[1] == TURNS


@pytest.mark.parametrize("damage", ["", "{", "null", '{"task_id": "a"}', "\udcff\udcfe"])
def test_a_damaged_line_is_named(tmp_path, damage):
    folder = write_run(tmp_path, TURNS)
    lines = (folder / "turns.jsonl").read_text().splitlines()
    lines[1] = damage
    text = "\n".join(lines) + "\n"
    (folder / "turns.jsonl").write_bytes(text.encode("utf-8", errors="surrogateescape"))
    with pytest.raises(DataError, match=r"turns\.jsonl, line 2 is damaged"):
        read_run(folder)


@pytest.mark.parametrize(
    ("header", "named"),
    [
        ({"format": 99}, "has format 99 and this version reads format 1"),
        ({"format": None}, "has format None"),
        ({"samples": "many"}, "samples"),
        ({"more": 1}, "more"),
    ],
)
def test_another_header_is_refused(tmp_path, header, named):
    (tmp_path / "run.json").write_text(json.dumps({"format": 1} | HEADER | header))
    with pytest.raises(DataError, match=named):
        read_run(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{", "\xff"])
def test_what_is_no_header_is_refused(tmp_path, text):
    (tmp_path / "run.json").write_text(text, encoding="latin-1")
    with pytest.raises(DataError, match=r"run\.json"):
        read_run(tmp_path)


@pytest.mark.parametrize("name", ["", "missing"])
def test_a_folder_without_a_run_is_refused(tmp_path, name):
    with pytest.raises(DataError, match=r"holds no run\.json: name the folder"):
        read_run(tmp_path / name)
