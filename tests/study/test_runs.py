# SPDX-License-Identifier: Apache-2.0
import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from recipes.cpu_study import runs
from recipes.cpu_study.comparisons import effect
from recipes.cpu_study.origin import KEYS, code_origin, origins, run_origin
from recipes.cpu_study.plan import Arm, Study
from recipes.cpu_study.runs import collect, execute, finished, minutes_left, read_rows
from tests.study.test_held_out import WRONG, right, write
from verl_kernel.errors import DataError, InfraError

STUDY = Study("r", 2, (0, 1), minutes=6, arms=(Arm("one", "One"), Arm("two", "Two", ("b=1",))))


def trainer(steps: int = 2, code: int = 0, tokens: int | None = None):
    """A trainer that leaves a metrics file as verl's does."""

    def train(folder: Path, argv: list[str]) -> int:
        cost = {} if tokens is None else {"perf/total_num_tokens": tokens}
        lines = [
            {"step": i, "data": {"training/global_step": i, "kernel/correct_rate": i / 10, "other": 1.0, **cost}}
            for i in range(1, steps + 1)
        ]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return code

    return train


def test_a_finished_run_is_known_until_its_overrides_change(tmp_path, monkeypatch):
    run = STUDY.runs()[0]
    assert finished(run, tmp_path) is None
    monkeypatch.setattr(runs, "time", SimpleNamespace(monotonic=iter([100.0, 107.25]).__next__))
    execute(run, tmp_path, trainer())
    known = finished(run, tmp_path)
    assert known.keys() == {"fingerprint", "overrides", "seconds", "commit", "date"}
    assert (known["fingerprint"], known["overrides"], known["seconds"]) == (run.fingerprint, list(run.overrides), 7.2)
    assert finished(replace(STUDY, overrides=("c=2",)).runs()[0], tmp_path) is None


@pytest.mark.parametrize("train", [trainer(code=1), trainer(steps=1)])
def test_a_failed_run_is_named_and_stays_missing(tmp_path, train):
    run = STUDY.runs()[0]
    execute(run, tmp_path, trainer())
    with pytest.raises(InfraError, match="one-0.*train.log"):
        execute(run, tmp_path, train)
    assert finished(run, tmp_path) is None


def test_the_estimate_is_the_plans_until_some_runs_are_timed(tmp_path):
    assert minutes_left(STUDY, tmp_path) == 4 * 6
    assert minutes_left(STUDY, tmp_path, STUDY.runs()[:1]) == 6
    execute(STUDY.runs()[0], tmp_path, trainer())
    path = tmp_path / "one-0" / "run.json"
    path.write_text(re.sub(r'"seconds": [\d.]+', '"seconds": 120', path.read_text()))
    assert minutes_left(STUDY, tmp_path) == 3 * 2


def test_collected_rows_hold_the_kept_metrics_of_finished_runs(tmp_path):
    for run in STUDY.runs()[:3]:
        execute(run, tmp_path, trainer())
    rows = collect(STUDY, tmp_path)
    assert rows == read_rows(tmp_path / "study.jsonl")
    assert len(rows) == 6
    measured = {key: value for key, value in rows[0].items() if key not in KEYS}
    assert measured == {"arm": "one", "seed": 0, "step": 1, "kernel/correct_rate": 0.1}
    assert {(row["arm"], row["seed"]) for row in rows} == {("one", 0), ("two", 0), ("one", 1)}


def test_a_run_that_ended_with_a_validation_has_its_figures(tmp_path):
    run = STUDY.runs()[0]

    def train(where: Path, argv: list[str]) -> int:
        (named,) = [word for word in argv if word.startswith("trainer.validation_data_dir=")]
        write(Path(named.partition("=")[2]) / "2.jsonl", [[[right(2.0, 0.25)]]])
        return trainer()(where, argv)

    execute(run, tmp_path, train)
    first, last = collect(STUDY, tmp_path)
    assert "held_out/coverage" not in first
    assert (tmp_path / run.name / "validation").is_dir()
    assert (last["held_out/coverage"], last["held_out/correct"], last["held_out/decoys"]) == (0.25, 1.0, 0.0)


PLAIN = Arm("plain", "Not trained", ("trainer.val_only=true",))
BEST = Arm("best", "Best of n", answers="plain", cost_of="one")
CONTROLS = replace(STUDY, seeds=(0,), arms=(STUDY.arms[0], PLAIN, BEST))


def test_an_arm_without_training_pays_for_the_best_of_n(tmp_path):
    wrong, correct = [WRONG], [right(2.0, 1.0)]

    def train(where: Path, argv: list[str]) -> int:
        if where.name == "plain-0":
            write(where / "validation" / "0.jsonl", [[correct, wrong, wrong, wrong]])
            return trainer(steps=0)(where, argv)
        # 26 tokens: two trajectories of an untrained policy's 13.
        write(where / "validation" / "2.jsonl", [[correct, wrong]])
        return trainer(tokens=0)(where, argv)

    runs_made = CONTROLS.runs()
    assert [run.name for run in runs_made] == ["one-0", "plain-0"]
    for run in runs_made:
        execute(run, tmp_path, train)
    *_, trained, plain, best = collect(CONTROLS, tmp_path)
    assert (trained["step"], trained["held_out/correct"]) == (2, 0.5)
    assert (plain["step"], plain["held_out/correct"]) == (0, 0.25)
    assert (best["arm"], best["n"], best["held_out/correct"], best["held_out/useful speedup"]) == ("best", 2, 0.5, 1.0)
    assert "held_out/decoys" not in best
    assert effect(collect(CONTROLS, tmp_path), ("one", "best"), "correct").differences == (0.0,)


def test_last_weights_are_validated_where_they_were_kept(tmp_path):
    study = replace(STUDY, seeds=(0,), arms=(Arm("one", "One"), Arm("asked", "Asked otherwise", weights_of="one")))
    asked, told = study.runs()[1], []

    def train(where: Path, argv: list[str]) -> int:
        told.extend(argv)
        write(where / "validation" / "2.jsonl", [[[right(2.0, 1.0)]]])
        return trainer(steps=0)(where, argv)

    execute(asked, tmp_path, train)
    assert f"trainer.resume_from_path={tmp_path}/one-0/checkpoints/global_step_2" in told
    (row,) = collect(study, tmp_path)
    assert (row["arm"], row["step"], row["held_out/correct"]) == ("asked", 0, 1.0)


def test_a_failed_run_without_training_is_no_finished_one(tmp_path):
    with pytest.raises(InfraError, match="plain-0 ended with exit code 1"):
        execute(CONTROLS.runs()[1], tmp_path, trainer(steps=0, code=1))


def test_rows_name_code_data_and_configuration(tmp_path):
    data = tmp_path / "data.parquet"
    data.write_bytes(b"rows")
    (tmp_path / "model.safetensors").write_bytes(b"weights")

    def train(where: Path, argv: list[str]) -> int:
        (named,) = [word for word in argv if word.startswith("hydra.run.dir=")]
        hydra = Path(named.partition("=")[2]) / ".hydra"
        hydra.mkdir(exist_ok=True)
        seed = where.name[-1]
        (hydra / "config.yaml").write_text(
            f"seed: {seed}\ndata:\n  train_files: {data}\n  val_files: [{data}]\n"
            f"actor_rollout_ref: {{model: {{path: {tmp_path}}}}}\n"
        )
        return trainer()(where, argv)

    for run in STUDY.runs():
        execute(run, tmp_path, train)
    rows = collect(STUDY, tmp_path)
    assert all(row.keys() >= set(KEYS) for row in rows)
    assert len({row["data"] for row in rows}) == 1
    assert len({row["configuration"] for row in rows}) == 2, "the seeds differ, and nothing else"
    assert rows[0]["commit"] in origins(rows)
    assert rows[0]["data"] in origins(rows)


def test_a_configuration_that_names_lost_data_is_refused(tmp_path):
    (tmp_path / ".hydra").mkdir()
    (tmp_path / ".hydra" / "config.yaml").write_text("data: {train_files: /none.parquet, val_files: []}")
    with pytest.raises(DataError, match="none.parquet"):
        run_origin(tmp_path)


def test_changed_data_change_their_hash(tmp_path):
    found = []
    for name, content in (("a", b"1"), ("b", b"1"), ("c", b"2")):
        folder = tmp_path / name
        (folder / ".hydra").mkdir(parents=True)
        (tmp_path / "data").write_bytes(content)
        (folder / ".hydra" / "config.yaml").write_text(
            f"dir: {folder}/x\nd: {tmp_path}\ndata: {{train_files: '${{d}}/data', val_files: null}}"
        )
        found.append(run_origin(folder))
    assert found[0] == found[1]
    assert found[0]["data"] != found[2]["data"]
    assert found[0]["configuration"] == found[2]["configuration"]


def test_a_checkout_is_named_by_its_commit(tmp_path):
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    assert code_origin(tmp_path)["commit"].startswith("version ")
    (tmp_path / "file").write_text("1")
    for words in (["init", "-q"], ["add", "file"], ["commit", "-q", "-m", "one"]):
        subprocess.run([*git, *words], check=True)
    commit = code_origin(tmp_path)["commit"]
    assert re.fullmatch("[0-9a-f]{12}", commit)
    (tmp_path / "file").write_text("2")
    assert code_origin(tmp_path)["commit"] == f"{commit}-dirty"


def test_rows_from_before_are_read_and_name_no_origin(tmp_path):
    rows = read_rows(Path(__file__).parents[2] / "data" / "study" / "second" / "study.jsonl")
    assert origins(rows) == ""
    assert not set(KEYS) & rows[0].keys()
