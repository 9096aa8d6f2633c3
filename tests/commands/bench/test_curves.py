# SPDX-License-Identifier: Apache-2.0
import json
import sys
from pathlib import Path

from typer.testing import CliRunner

from verl_kernel.bench.records import BenchTurn, RunHeader, SuiteTask
from verl_kernel.cli import app
from verl_kernel.env import EvalResult, EvalStatus

HEADER = RunHeader(
    suite="cpu", suite_hash="", tasks=2, model="m", source="endpoint", samples=1, turns=2, context="top_w", window=4,
    temperature=1.0, top_p=1.0, max_tokens=9, seed=0, device="cpu", baseline="eager", gym={}, versions={}, started="",
)  # fmt: skip


def write_run(folder: Path, speedups: dict[str, list[float]]) -> Path:
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(HEADER.model_dump_json())
    lines = [
        BenchTurn(
            task_id=task, task_hash="h", sample=0, turn=turn, reward=1.0, prompt_tokens=30, completion_tokens=12,
            result=EvalResult(
                task_id=task, status=EvalStatus.OK, correctness=True, decoy_kernel=False, speedup=speedup,
                timing_source="simulated",
            ),
        )
        for task, found in speedups.items()
        for turn, speedup in enumerate(found, 1)
    ]  # fmt: skip
    (folder / "turns.jsonl").write_text("".join(line.model_dump_json() + "\n" for line in lines))
    return folder


def curves(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["bench-curves", *map(str, words)], env={"COLUMNS": "160"})
    return result.exit_code, result.output


def test_runs_are_drawn_beside_each_other(tmp_path):
    one = write_run(tmp_path / "one", {"a": [1.0, 2.0], "b": [1.5, 1.0]})
    two = write_run(tmp_path / "two", {"a": [1.0, 1.1], "b": [1.5, 1.4]})
    status, said = curves(one, two, "--out", tmp_path / "docs" / "curves.svg")
    assert status == 0, said
    assert "0.500" in said
    assert "1.000" in said
    assert "84" in said
    found = json.loads((tmp_path / "docs" / "curves.json").read_text())
    assert [(run["name"], run["by_turn"][1]["best"]["value"]) for run in found] == [("one", 1.0), ("two", 0.5)]
    drawn = (tmp_path / "docs" / "curves.svg").read_text()
    assert "one, last turn" in drawn
    assert "fast@1.2, simulated times" in said
    assert "fast@1.2, simulated times" in drawn


def test_intervals_do_not_depend_on_which_answer_came_first(tmp_path):
    for name, tasks in (("one", "abc"), ("two", "cab")):
        run = write_run(tmp_path / name / "top_w", {task: [1.0 + "abc".index(task)] for task in tasks})
        (run / "run.json").write_text(HEADER.model_copy(update={"tasks": 3}).model_dump_json())
        lines = [SuiteTask(task_id=task, task_hash="h").model_dump_json() + "\n" for task in "abc"]
        (run / "tasks.jsonl").write_text("".join(lines))
        status, said = curves(run, "--out", tmp_path / f"{name}.svg")
        assert status == 0, said
    assert (tmp_path / "one.json").read_text() == (tmp_path / "two.json").read_text()


def test_runs_of_one_name_are_told_by_their_parents(tmp_path):
    runs = [write_run(tmp_path / part / "top_w", {"a": [1.0], "b": [1.5]}) for part in ("w1", "w4")]
    status, said = curves(*runs, "--out", tmp_path / "curves.png")
    assert status == 0
    assert "w1/top_w" in said
    assert "w4/top_w" in said
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_the_points_are_written(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    status, said = curves(write_run(tmp_path / "one", {"a": [1.0], "b": [1.5]}), "--out", tmp_path / "curves.svg")
    assert status == 1
    assert "install the extra `plot`" in said
    assert (tmp_path / "curves.json").is_file()
    assert not (tmp_path / "curves.svg").exists()
