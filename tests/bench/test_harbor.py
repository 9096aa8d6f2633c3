# SPDX-License-Identifier: Apache-2.0
"""A bench's tasks as folders for Harbor: their files, and the verdicts of their judge."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.recorded import WRONG, timed, turn, write_run
from tests.commands.lines import ROOT, invoked
from verl_kernel.adapters.harbor import judge
from verl_kernel.bench.records import SuiteTask
from verl_kernel.env import GymOptions

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

EXAMPLES = ROOT / "examples"
REFERENCE, FUSED, WRONG_KERNEL = ((EXAMPLES / f"{name}.py").read_text() for name in ("reference", "fused", "wrong"))
GYM = {"correctness_trials": 2, "compile_for": ["sm_90", "gfx942"]}


def task(name: str, reference: str | None = REFERENCE) -> SuiteTask:
    return SuiteTask(task_id=name, task_hash="h", level=1, family='"f"\n', reference=reference)


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    tasks = [task("a/b"), task("a.b"), task("old", None), task("other name", REFERENCE.replace("Model", "Net"))]
    turns = [turn("a/b", 0, 1, WRONG), turn("a/b", 1, 1, timed(2.0), code=FUSED), turn("a.b", 0, 1, WRONG)]
    run = write_run(tmp_path / "run", turns, tasks, tasks=5, gym=GYM, reward={"variant": "weighted"})
    said = invoked("bench-harbor", run, "--out", tmp_path / "out").output
    assert said == f"{tmp_path / 'out'}: 2 tasks, 3 left out, whose program is not in the run\n"
    return tmp_path / "out"


def test_a_task_is_a_folder_of_harbors_format(exported):
    folders = sorted(exported.iterdir())
    assert [folder.name for folder in folders] == ["a_b", "a_b_2e7336dc"]
    solved, unsolved = ({str(file.relative_to(folder)) for file in folder.rglob("*.*")} for folder in folders)
    assert unsolved == {
        *("task.toml", "instruction.md", "environment/reference.py"),
        *("tests/test.sh", "tests/judge.json", "tests/reference.py"),
    }
    assert solved - unsolved == {"solution/solve.sh", "solution/kernel.py"}
    assert (exported / "a_b/solution/kernel.py").read_text() == FUSED
    assert "reference.py" in (exported / "a_b/environment/Dockerfile").read_text()
    config = tomllib.loads((exported / "a_b/task.toml").read_text())
    assert config["task"]["name"] == "verl-kernel/a_b"
    assert config["metadata"]["task_id"] == "a/b"
    assert config["metadata"]["family"] == '"f"\n'
    assert (config["verifier"]["environment_mode"], config["artifacts"]) == ("separate", ["/app/kernel.py"])
    asked = (exported / "a_b/instruction.md").read_text()
    assert "Write a file `/app/kernel.py` that holds all imports" in asked
    assert REFERENCE.strip() in asked


def test_a_run_without_a_task_that_can_be_written_is_refused(tmp_path):
    run = write_run(tmp_path / "run", [turn("old", 0, 1, WRONG)], [task("old", None)], tasks=1)
    said = invoked("bench-harbor", run, "--out", tmp_path / "out", exit_code=2).output
    assert "run/tasks.jsonl holds no task whose program defines `Model`: run the bench again" in said


def test_a_task_is_judged_as_in_its_run(exported):
    stated = json.loads((exported / "a_b/tests/judge.json").read_text())
    options = GymOptions.from_node(stated["gym"])
    assert (options.correctness_trials, options.compile_for) == (2, ("sm_90", "gfx942"))
    assert (options.device, options.reference_mode, stated["reward"]) == ("cpu", "eager", {"variant": "weighted"})


def test_no_kernel_earns_nothing(exported, tmp_path):
    judge(exported / "a_b/tests", tmp_path / "none.py", tmp_path)
    assert json.loads((tmp_path / "reward.json").read_text()) == {"reward": 0.0, "correct": 0.0, "speedup": 0.0}
    assert json.loads((tmp_path / "verdict.json").read_text())["error"]["type"] == "NoCode"


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize(("source", "correct"), [(FUSED, 1.0), (WRONG_KERNEL, 0.0)], ids=["right", "wrong"])
def test_a_kernel_has_the_rewards_of_the_gym(exported, tmp_path, source, correct):
    (tmp_path / "kernel.py").write_text(source)
    line = (exported / "a_b/tests/test.sh").read_text()
    for path, here in (("/tests", exported / "a_b/tests"), ("/app", tmp_path), ("/logs/verifier", tmp_path)):
        line = line.replace(path, str(here), 1)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run(["bash", "-c", line], env=environment, cwd=ROOT, check=True, timeout=600)
    rewards = json.loads((tmp_path / "reward.json").read_text())
    assert rewards["correct"] == correct
    assert (rewards["reward"] > 1) == (rewards["speedup"] > 1) == bool(correct)
