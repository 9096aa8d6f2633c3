# SPDX-License-Identifier: Apache-2.0
import json
import sys
from pathlib import Path
from typing import Any

from tests.bench import recorded
from tests.commands.lines import invoked
from verl_kernel.bench.records import SuiteTask


def write_run(folder: Path, speedups: dict[str, list[float]], names: str = "", **header: Any) -> Path:
    """A run whose answers are all right and as fast as told."""
    facts = {"prompt_tokens": 30, "completion_tokens": 12}
    turns = [
        recorded.turn(task, 0, number, recorded.timed(speedup), **facts)
        for task, found in speedups.items()
        for number, speedup in enumerate(found, 1)
    ]
    named = [SuiteTask(task_id=task, task_hash=f"hash of {task}") for task in names]
    kind = {"samples": 1, "context": "top_w", "window": 4}
    return recorded.write_run(folder, turns, named, **kind | header)


def curves(*words: object, exit_code: int = 0) -> str:
    return invoked("bench-curves", *words, exit_code=exit_code, columns=160).output


def test_runs_are_drawn_beside_each_other(tmp_path):
    one = write_run(tmp_path / "one", {"a": [1.0, 2.0], "b": [1.5, 1.0]})
    two = write_run(tmp_path / "two", {"a": [1.0, 1.1], "b": [1.5, 1.4]})
    said = curves(one, two, "--out", tmp_path / "docs" / "curves.svg")
    assert all(figure in said for figure in ("0.500", "1.000", "84"))
    found = json.loads((tmp_path / "docs" / "curves.json").read_text())
    assert [(run["name"], run["by_turn"][1]["best"]["value"]) for run in found] == [("one", 1.0), ("two", 0.5)]
    drawn = (tmp_path / "docs" / "curves.svg").read_text()
    assert "one, last turn" in drawn
    assert "fast@1.2, simulated times" in said
    assert "fast@1.2, simulated times" in drawn


def test_intervals_do_not_depend_on_which_answer_came_first(tmp_path):
    for name, tasks in (("one", "abc"), ("two", "cab")):
        speedups = {task: [1.0 + "abc".index(task)] for task in tasks}
        run = write_run(tmp_path / name / "top_w", speedups, "abc", tasks=3)
        curves(run, "--out", tmp_path / f"{name}.svg")
    assert (tmp_path / "one.json").read_text() == (tmp_path / "two.json").read_text()


def test_runs_of_one_name_are_told_by_their_parents(tmp_path):
    runs = [write_run(tmp_path / part / "top_w", {"a": [1.0], "b": [1.5]}) for part in ("w1", "w4")]
    said = curves(*runs, "--out", tmp_path / "curves.png")
    assert "w1/top_w" in said
    assert "w4/top_w" in said
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_the_points_are_written(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    run = write_run(tmp_path / "one", {"a": [1.0], "b": [1.5]})
    assert "install the extra `plot`" in curves(run, "--out", tmp_path / "curves.svg", exit_code=1)
    assert (tmp_path / "curves.json").is_file()
    assert not (tmp_path / "curves.svg").exists()
