# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel preflight` says what a training would be refused for, and starts nothing."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands.lines import invoked
from tests.preflight.folder import write_folder

README = (Path(__file__).parents[2] / "README.md").read_text()
_COMMAND = re.search(r"^```sh gpu\npython -m verl\.trainer\.main_ppo (--config-name=kernel_trloo .*)$", README, re.M)
RECIPE = tuple(shlex.split(_COMMAND[1] if _COMMAND else ""))
"""README's command for GPUs."""
ONE_NODE = ("--machine", "8xH100-80GB")
LOSS = "actor_rollout_ref.actor.policy_loss.loss_mode"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return write_folder(tmp_path)


def preflight(*words: str, status: int = 0) -> str:
    """What the command says: of an objection on the stream of errors, in one line."""
    done = invoked("preflight", *words, exit_code=status)
    return " ".join(done.stderr.split()) if status else done.stdout


@pytest.mark.slow
def test_the_recipe_fits_8_gpus():
    assert "no objection on 8xH100-80GB, a machine that is only described" in preflight(*RECIPE, *ONE_NODE)


def test_a_misspelt_name_is_refused_for_gpus_without_any(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("VERL_PLATFORM", raising=False)
    said = preflight(*RECIPE, f"{LOSS}=rec_onesided_is", *ONE_NODE, status=1)
    assert f"{LOSS} is 'rec_onesided_is'; did you mean rec_one_side_is? " in said


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_process_of_its_own_tells_its_own_lines_only(folder: Path):
    environment = {**os.environ, "VERL_PLATFORM": "cpu"}
    command = [sys.executable, "-m", "verl_kernel", "preflight", *RECIPE, *ONE_NODE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


@pytest.mark.slow
def test_what_was_not_looked_at_is_listed():
    lines = preflight(*RECIPE, *ONE_NODE).splitlines()
    assert [line for line in lines if line.startswith("not checked here: ")] == lines[:-1]
    assert len(lines) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--machine", "2xH100-80GB"), "8 GPUs (4 the trainer, 4 the judges)"),
        (("data.train_files=nowhere.parquet", *ONE_NODE), "nowhere.parquet"),
    ],
)
def test_an_objection_is_one_sentence_and_an_exit_status(words: tuple[str, ...], said: str):
    assert said in preflight(*RECIPE, *words, status=1)


@pytest.mark.slow
def test_a_machine_without_a_gpu_is_told_how_to_submit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("VERL_PLATFORM", raising=False)
    assert "set RAY_ADDRESS" in preflight(*RECIPE, status=1)


@pytest.mark.slow
def test_a_head_node_without_a_gpu_may_submit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("VERL_PLATFORM", raising=False)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert "not checked here: 8 GPUs in the Ray cluster at 10.0.0.1:6379" in preflight(*RECIPE)


@pytest.mark.slow
def test_a_recipe_of_ones_own_is_found_in_its_folder(folder: Path):
    (folder / "mine.yaml").write_text("defaults: [kernel_trloo, _self_]\nkernelgym: {num_judges: 10}")
    mine = ("--config-name=mine", "--config-dir", str(folder), *RECIPE[1:])
    assert "5 the judges" in preflight(*mine, *ONE_NODE, status=1)


def test_a_recipe_for_the_cpu_is_checked_on_this_machine(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    said = preflight("--config-name=cpu_quickstart", f"quickstart_dir={folder}")
    assert said == "cpu_quickstart: no objection\n"
