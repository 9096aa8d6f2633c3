# SPDX-License-Identifier: Apache-2.0
"""The tutorial's training: its own command line with two of its five steps, and a report."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.runs import SAMPLES
from verl_kernel.reporting.steps import read_steps, read_validations

pytestmark = [*(pytest.mark.e2e, pytest.mark.slow, pytest.mark.ray, pytest.mark.exhaustive), pytest.mark.timeout(7200)]

ROOT = Path(__file__).parents[2]
FOLDER, STEPS = "outputs/tutorial", "trainer.total_training_steps="


def tutorial_line(start: str) -> str:
    """The one command line of the page that holds `start`."""
    blocks = re.findall(r"^```sh long\n(.*?)^```", (ROOT / "docs" / "tutorial.md").read_text(), re.M | re.S)
    (line,) = [line for block in blocks for line in block.splitlines() if start in line]
    return line


def shell(line: str) -> str:
    """What a command prints, run from the checkout as the page says."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", line], cwd=ROOT, env={**os.environ, "PATH": path}, text=True, capture_output=True, timeout=3600
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def folder(quickstart, tmp_path_factory):
    """The run of the page's training command with fewer steps and samples, another folder and the quickstart there is.

    A third step does what the second one does.
    """
    folder = tmp_path_factory.mktemp("tutorial")
    line = tutorial_line(f"run.sh {STEPS}5").replace(FOLDER, str(folder)).replace(f"{STEPS}5", f"{STEPS}2")
    rollout = "actor_rollout_ref.rollout"
    shell(f"{line} quickstart_dir={quickstart} {rollout}.n={SAMPLES} {rollout}.val_kwargs.n=1")
    return folder


def test_it_trains_for_as_many_steps_as_the_line_says(folder):
    assert [step["step"] for step in read_steps(folder / "metrics.jsonl")] == [1, 2]


def test_it_validates_before_and_after(folder):
    assert [step["step"] for step in read_validations(folder / "metrics.jsonl")] == [0, 2]


def test_its_report_command_writes_the_page_again(folder):
    (folder / "report.html").unlink()
    shell(tutorial_line("verl-kernel report").replace(FOLDER, str(folder)))
    assert "<html" in (folder / "report.html").read_text()
