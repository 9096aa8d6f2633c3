# SPDX-License-Identifier: Apache-2.0
"""A run's folder: written, read, taken up again, refused, cut, full."""

import json
import resource
from dataclasses import replace
from pathlib import Path

import pytest

from tests.bench import recorded
from tests.bench.scripted_run import header_of, judged, suite_of
from verl_kernel.bench.records import HEADER, TURNS, BenchTurn, RunHeader, SuiteTask, read_header, read_run, read_tasks
from verl_kernel.bench.request import BenchOptions
from verl_kernel.bench.store import Store
from verl_kernel.env import GymOptions
from verl_kernel.errors import ConfigError, DataError, StorageError
from verl_kernel.reward.profiling import ProfilingReward

SUITE = suite_of("a", "b")
ANSWERS = (("a", 0, 1, recorded.OK), ("a", 0, 2, recorded.WRONG), ("b", 1, 1, recorded.OK))
RECORDED = [recorded.turn(*answer) for answer in ANSWERS]


def turn(number=1, sample=0, task="a", **facts):
    return BenchTurn(task_id=task, task_hash="h", sample=sample, turn=number, result=judged(), reward=1.0, **facts)


def opened(folder, suite=SUITE, **changes):
    return Store(folder, header_of(suite, **changes), suite)


def test_a_run_is_made_and_goes_on(tmp_path):
    with opened(tmp_path / "new" / "run") as store:
        store.append(turn())
    assert [task.task_id for task in read_tasks(tmp_path / "new" / "run")] == ["a", "b"]
    with opened(tmp_path / "new" / "run", started="later") as store:
        assert store.history((SUITE.tasks[0], 0)) == [turn()]
        assert not store.history((SUITE.tasks[1], 0))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"turns": 2}, "turns is 1, and this one's is 2"),
        ({"temperature": 0.5}, "temperature"),
        ({"seed": 3}, "seed"),
        ({"model": "other"}, "model is 'm', and this one's is 'other'"),
        ({"gym": {"correctness_trials": 2}}, "gym.correctness_trials is None, and this one's is 2"),
        ({"versions": {"torch": "3"}}, "versions.torch is '2', and this one's is '3'"),
        ({"feedback_chars": 360}, "feedback_chars"),
        ({"total_tokens": 9}, "total_tokens"),
    ],
)
def test_another_run_is_refused_with_the_difference(tmp_path, changes, words):
    with opened(tmp_path) as store:
        store.append(turn())
    with pytest.raises(ConfigError, match=rf"holds a run whose .*{words}.*repeat the command.*--out"):
        opened(tmp_path, **changes)
    opened(tmp_path).close()


@pytest.mark.parametrize(
    ("suite", "words"),
    [
        (suite_of("a"), "a run on 2 tasks of suite s, and this one is on 1 of suite s"),
        (suite_of("a", "b", name="t"), "a run on 2 tasks of suite s, and this one is on 2 of suite t"),
        (suite_of("a", "c"), "a run on suite s without task c, which this one asks"),
        (suite_of("b", "a"), "a run on suite s in which task b has another reference than now"),
        (replace(SUITE, tasks=(*SUITE.tasks[1:], SUITE.tasks[0])), "a run on suite s whose tasks are others than now"),
        (replace(SUITE, tasks=tuple(replace(one, messages=()) for one in SUITE.tasks)), "whose prompts are others"),
    ],
)
def test_another_suite_is_named_with_its_tasks(tmp_path, suite, words):
    with opened(tmp_path) as store:
        store.append(turn())
    with pytest.raises(ConfigError, match=rf"{tmp_path} holds .*{words}.*repeat the command.*--out") as refused:
        opened(tmp_path, suite)
    assert "hash" not in str(refused.value)


def test_a_start_without_an_answer_leaves_no_run(tmp_path):
    opened(tmp_path).close()
    assert not (tmp_path / HEADER).exists()
    with opened(tmp_path, temperature=0.5) as store:
        store.append(turn())
    assert read_header(tmp_path).temperature == 0.5


def test_what_changes_no_verdict_may_change():
    plain, more = (header_of(SUITE, BenchOptions(requests=requests)) for requests in (1, 9))
    assert plain.model_copy(update={"started": ""}) == more.model_copy(update={"started": ""})
    from verl_kernel.bench.request import _chosen

    assert _chosen(ProfilingReward(speedup="point")) == {"speedup": "point"}
    assert _chosen(ProfilingReward()) == {}
    assert _chosen(GymOptions(num_judges=4, device="cpu", memory_checks="refuse")) == {"memory_checks": "refuse"}


def test_a_cut_last_line_is_dropped(tmp_path):
    with opened(tmp_path) as store:
        store.append(turn(1))
        store.append(turn(2))
    path = tmp_path / TURNS
    for left in range(1, len(turn(2).model_dump_json()), 97):
        path.write_bytes(path.read_bytes().partition(b"\n")[0] + b"\n" + turn(2).model_dump_json().encode()[:left])
        with opened(tmp_path) as store:
            assert store.history((SUITE.tasks[0], 0)) == [turn(1)]
            store.append(turn(2))
        assert read_run(tmp_path)[1] == [turn(1), turn(2)]


def test_turns_behind_a_gap_are_played_again(tmp_path):
    with opened(tmp_path) as store:
        store.append(turn(1))
        store.append(turn(3))
    with opened(tmp_path) as store:
        assert store.history((SUITE.tasks[0], 0)) == [turn(1)]


def test_a_folder_has_one_writer(tmp_path):
    with opened(tmp_path), pytest.raises(ConfigError, match="is in use by another bench"):
        opened(tmp_path)
    opened(tmp_path).close()


def test_turns_that_are_damaged_or_have_no_header_are_refused(tmp_path):
    with opened(tmp_path) as store:
        store.append(turn())
    (tmp_path / TURNS).write_text("{}\n" + (tmp_path / TURNS).read_text())
    with pytest.raises(DataError, match="line 1 is damaged"):
        opened(tmp_path)
    (tmp_path / HEADER).unlink()
    with pytest.raises(DataError, match=r"holds turns.jsonl without run.json"):
        opened(tmp_path)


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="--out is .*file/run, and .*/file is a file: name a folder"):
        opened(tmp_path / "file" / "run")
    with pytest.raises(StorageError, match="--out is /proc/run, which cannot be made .*: name a folder where"):
        opened(Path("/proc/run"))


def test_a_full_disk_keeps_whole_lines(tmp_path):
    """A limit on the size of files stands for the disk: the system writes a part of the line, then none."""
    with opened(tmp_path) as store:
        store.append(turn(1))
        size = (tmp_path / TURNS).stat().st_size
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 40, hard))
        try:
            with pytest.raises(StorageError, match="cannot be written .*what was finished stays"):
                store.append(turn(2))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert (tmp_path / TURNS).stat().st_size == size
        store.append(turn(2))
    assert read_run(tmp_path)[1] == [turn(1), turn(2)]


def test_what_was_written_is_read(tmp_path):
    tasks = [SuiteTask(task_id="a", task_hash="h", level=1, family="map"), SuiteTask(task_id="b", task_hash="i")]
    folder = recorded.write_run(tmp_path / "run", RECORDED, tasks)
    assert read_run(folder) == (RunHeader(**recorded.HEADER), RECORDED)
    assert read_tasks(folder) == tasks
    assert read_tasks(recorded.write_run(tmp_path / "other", RECORDED)) == []


def test_a_run_that_was_killed_at_once_has_no_answers(tmp_path):
    (recorded.write_run(tmp_path, []) / "turns.jsonl").unlink()
    assert read_run(tmp_path)[1] == []


def test_a_cut_last_line_is_left_out(tmp_path):
    folder = recorded.write_run(tmp_path, RECORDED)
    whole = (folder / "turns.jsonl").read_bytes()
    for length in (len(whole) - 1, len(whole) - 40):
        (folder / "turns.jsonl").write_bytes(whole[:length])
        assert read_run(folder)[1] == RECORDED[:2]


def test_an_answer_that_was_judged_again_counts_once(tmp_path):
    lost = recorded.turn("a", 0, 1, {"status": "infra_error"})
    assert read_run(recorded.write_run(tmp_path, [lost, *RECORDED]))[1] == RECORDED


@pytest.mark.parametrize("damage", ["", "{", "null", '{"task_id": "a"}', "\udcff\udcfe"])
def test_a_damaged_line_is_named(tmp_path, damage):
    folder = recorded.write_run(tmp_path, RECORDED)
    lines = (folder / "turns.jsonl").read_text().splitlines()
    text = "\n".join([lines[0], damage, *lines[2:], ""])
    (folder / "turns.jsonl").write_text(text, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(DataError, match=r"turns\.jsonl, line 2 is damaged"):
        read_run(folder)


HEADERS = [({"format": 99}, "has format 99 and this version reads format 1"), ({"format": None}, "has format None")]
HEADERS += [({"samples": "many"}, "samples"), ({"more": 1}, "more")]


@pytest.mark.parametrize(
    ("text", "named"),
    [(json.dumps({"format": 1} | recorded.HEADER | changes), named) for changes, named in HEADERS]
    + [(text, r"run\.json") for text in ("", "[]", "{", "\xff")],
)
def test_another_header_is_refused(tmp_path, text, named):
    (tmp_path / "run.json").write_text(text, encoding="latin-1")
    with pytest.raises(DataError, match=named):
        read_run(tmp_path)
