# SPDX-License-Identifier: Apache-2.0
import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from verl_kernel.env import EvalResult, EvalStatus
from verl_kernel.errors import InfraError
from verl_kernel.reward.record import TurnRecord, dump_turns
from verl_kernel.study import runs
from verl_kernel.study.plan import Arm, Study
from verl_kernel.study.runs import collect, execute, finished, minutes_left, read_rows

STUDY = Study("r", 2, (0, 1), minutes=6, arms=(Arm("one", "One"), Arm("two", "Two", ("b=1",))))


def trainer(steps: int = 2, code: int = 0):
    """A trainer that leaves a metrics file as verl's does."""

    def train(folder: Path, argv: list[str]) -> int:
        lines = [
            {"step": step, "data": {"training/global_step": step, "kernel/correct_rate": step / 10, "other": 1.0}}
            for step in range(1, steps + 1)
        ]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return code

    return train


def test_a_finished_run_is_known_until_its_overrides_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run = STUDY.runs()[0]
    assert finished(run, tmp_path) is None
    monkeypatch.setattr(runs, "time", SimpleNamespace(monotonic=iter([100.0, 107.25]).__next__))
    execute(run, tmp_path, trainer())
    assert finished(run, tmp_path) == {
        "fingerprint": run.fingerprint,
        "overrides": list(run.overrides),
        "seconds": 7.2,
    }
    assert finished(replace(STUDY, overrides=("c=2",)).runs()[0], tmp_path) is None


@pytest.mark.parametrize("train", [trainer(code=1), trainer(steps=1)])
def test_a_failed_run_is_named_and_stays_missing(tmp_path: Path, train):
    run = STUDY.runs()[0]
    execute(run, tmp_path, trainer())
    with pytest.raises(InfraError, match="one-0.*train.log"):
        execute(run, tmp_path, train)
    assert finished(run, tmp_path) is None


def test_the_estimate_is_the_plans_until_runs_have_been_timed(tmp_path: Path):
    assert minutes_left(STUDY, tmp_path) == 4 * 6
    run = STUDY.runs()[0]
    execute(run, tmp_path, trainer())
    path = tmp_path / "one-0" / "run.json"
    path.write_text(re.sub(r'"seconds": [\d.]+', '"seconds": 120', path.read_text()))
    assert minutes_left(STUDY, tmp_path) == 3 * 2


def test_collected_rows_hold_the_kept_metrics_of_finished_runs(tmp_path: Path):
    for run in STUDY.runs()[:3]:
        execute(run, tmp_path, trainer())
    rows = collect(STUDY, tmp_path)
    assert rows == read_rows(tmp_path / "study.jsonl") and len(rows) == 6
    assert rows[0] == {"arm": "one", "seed": 0, "step": 1, "kernel/correct_rate": 0.1}
    assert {(row["arm"], row["seed"]) for row in rows} == {("one", 0), ("two", 0), ("one", 1)}


def test_a_run_that_ended_with_a_validation_has_held_out_figures(tmp_path: Path):
    run = STUDY.runs()[0]
    folder = tmp_path / run.name

    def train(where: Path, argv: list[str]) -> int:
        (named,) = [word for word in argv if word.startswith("trainer.validation_data_dir=")]
        validation = Path(named.partition("=")[2])
        validation.mkdir(parents=True)
        right = EvalResult(task_id="t", status=EvalStatus.OK, correctness=True, speedup=2.0, time_coverage=0.25)
        turns = dump_turns([TurnRecord(start=0, stop=1, reward=1.0, result=right)])
        (validation / "2.jsonl").write_text(json.dumps({"kernel_turns": turns}) + "\n")
        return trainer()(where, argv)

    execute(run, tmp_path, train)
    first, last = collect(STUDY, tmp_path)
    assert "held_out/coverage" not in first and (folder / "validation").is_dir()
    assert (last["held_out/coverage"], last["held_out/correct"], last["held_out/decoys"]) == (0.25, 1.0, 0.0)


def test_the_estimate_counts_the_chosen_arms_alone(tmp_path: Path):
    assert minutes_left(STUDY, tmp_path, STUDY.runs()[:1]) == 6
