# SPDX-License-Identifier: Apache-2.0
"""The command with the real recipe's plan but a trainer that only leaves metrics behind."""

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from omegaconf import OmegaConf

from recipes.cpu_study import command as study
from recipes.cpu_study.command import app
from tests.commands.lines import invoked
from tests.env.waiting import until
from tests.study.test_plan import SMALL
from tests.study.test_runs import trainer
from tests.tiers import thinned


@pytest.fixture
def plan(tmp_path):
    path = tmp_path / "plan.yaml"
    OmegaConf.save(OmegaConf.create(SMALL), path)
    return path


def run(plan: Path, *options: str, exit_code: int = 0) -> str:
    return invoked(plan, "--out", plan.parent / "out", *options, exit_code=exit_code, command=app).output


def trains(monkeypatch: pytest.MonkeyPatch, failing: Callable[[list[str]], bool] = lambda trained: False) -> list[str]:
    """Put a trainer in the real one's place that fails where `failing` says so; the names of its runs so far."""
    trained: list[str] = []

    def train(folder: Path, argv: list[str]) -> int:
        trained.append(folder.name)
        return 1 if failing(trained) else trainer()(folder, argv)

    monkeypatch.setattr(study, "_train", train)
    return trained


@pytest.mark.slow
def test_a_stopped_study_goes_on_where_it_was(plan, monkeypatch):
    trained = trains(monkeypatch, lambda trained: trained[-1] == "one-1" and trained.count("one-1") == 1)
    assert "1 of the study's arms failed; the first: run one-1" in run(plan, exit_code=3)
    assert "4 runs, 3 finished" in run(plan)
    assert trained == ["one-0", "two-0", "one-1", "two-1", "one-1"]
    out = plan.parent / "out"
    assert len(out.joinpath("study.jsonl").read_text().splitlines()) == 8
    assert json.loads((out / "one-0" / "run.json").read_text())["overrides"]
    assert "| One | 2 |" in (out / "table.md").read_text()
    assert (out / "study.png").is_file()


@pytest.mark.exhaustive
def test_an_arm_that_failed_is_left_alone(plan, monkeypatch):
    trained = trains(monkeypatch, lambda trained: trained[-1].startswith("one"))
    assert "| Two | 2 |" in run(plan, exit_code=3)
    assert trained == ["one-0", "two-0", "two-1"]


def test_only_the_chosen_arms_are_trained(plan, monkeypatch):
    trained = trains(monkeypatch)
    assert "2 runs, 0 finished" in run(plan, "--arms", "two")
    assert trained == ["two-0", "two-1"]


def test_a_dry_run_says_what_it_would_do_and_how_long_it_takes(plan):
    said = run(plan, "--dry-run")
    assert "about 4 min left" in said
    assert "--config-name=r trainer.total_training_steps=2 a=1 b=1" in said


@pytest.mark.slow
def test_a_study_that_is_asked_to_end_ends_its_run(tmp_path):
    run = f"from recipes.cpu_study.command import _train; _train(Path({str(tmp_path)!r}), ['sleep', '1234'])"
    with subprocess.Popen([sys.executable, "-c", f"from pathlib import Path; {run}"]) as process:
        sleep = until(lambda: _below(process.pid, "sleep"))
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 128 + signal.SIGTERM
    assert not sleep.is_running()


def _below(pid: int, name: str) -> psutil.Process | None:
    with contextlib.suppress(psutil.NoSuchProcess):
        return next((one for one in psutil.Process(pid).children(recursive=True) if one.name() == name), None)
    return None


def test_nothing_finished_is_nothing_to_compare(plan):
    assert "nothing to compare" in run(plan, "--summary-only")


@pytest.mark.parametrize(
    ("text", "sentence"), [(None, "cannot be read"), ("{", "cannot be read"), ('{"step": 1}\n', "line 1")]
)
def test_rows_that_are_none_are_refused_in_a_sentence(plan, text, sentence):
    rows = plan.parent / "rows.jsonl"
    if text is not None:
        rows.write_text(text)
    said = run(plan, "--rows", str(rows), exit_code=2)
    assert f"Error: {rows}" in said
    assert sentence in said


ROOT = Path(__file__).parents[2]
KEPT = ROOT / "data" / "study"
EARLIER = [(f"data/study/{name}/study.yaml", name) for name in ("first", "second", "third")]
TABLES = [*EARLIER, ("recipes/cpu_study/study.yaml", "fourth")]


@pytest.mark.parametrize("names", thinned(TABLES, 4))
def test_a_committed_table_is_made_again_byte_for_byte(tmp_path, names):
    study, folder = names
    kept = KEPT / folder
    invoked(ROOT / study, "--rows", kept / "study.jsonl", "--out", tmp_path, command=app)
    assert (tmp_path / "table.md").read_bytes() == (kept / "table.md").read_bytes()
    made = {path.name for path in kept.iterdir()} - {"study.jsonl", "study.yaml", "power.md"}
    assert {path.name for path in tmp_path.iterdir()} == made


def test_the_page_holds_the_comparisons_of_the_kept_table():
    table = (KEPT / "fourth" / "table.md").read_text()
    page = (ROOT / "docs" / "notes" / "study.md").read_text()
    verdicts = ("decided |", "confirmed |", "expected |", "smaller |", "larger |")
    made = [line for line in table.splitlines() if line.endswith(verdicts)]
    assert len(made) == 4
    assert [line for line in made if line not in page] == []
