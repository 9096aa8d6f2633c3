# SPDX-License-Identifier: Apache-2.0
"""The tutorial and the how-to pages hold complete examples, written down and run as a reader would."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TUTORIAL = ROOT / "docs" / "tutorial.md"
PAGES = [TUTORIAL, *sorted((ROOT / "docs" / "howto").glob("*.md"))]
FENCE = re.compile(r"^```(\S+) ?(\S*)\n(.*?)^```", re.M | re.S)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_example_of_a_page_runs(page, tmp_path):
    blocks = FENCE.findall(page.read_text())
    commands = "".join(body for language, kind, body in blocks if (language, kind) == ("sh", "here")).splitlines()
    assert commands
    changes = [body for language, _, body in blocks if language == "diff"]
    if changes:
        shutil.copytree(ROOT / "verl_kernel", tmp_path / "verl_kernel", ignore=shutil.ignore_patterns("__pycache__"))
    for language, name, body in blocks:
        if language == "python":
            (tmp_path / name).write_text(body)
    for diff in changes:
        subprocess.run(["git", "apply"], cwd=tmp_path, input=diff, text=True, check=True)
    package = tmp_path if changes else ROOT
    for line in commands:
        done = run(line, tmp_path, package)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "pytest" not in line or " passed" in done.stdout


@pytest.mark.slow
def test_the_tutorial_shows_what_its_rewards_print(tmp_path):
    text = TUTORIAL.read_text()
    for language, name, body in FENCE.findall(text):
        if language == "python":
            (tmp_path / name).write_text(body)
    (tmp_path / "right.py").write_text((tmp_path / "wrong.py").read_text().replace("/ BLOCK", "/ columns"))
    done = run("python rewards.py", tmp_path, ROOT)
    (shown,) = (body for language, _, body in FENCE.findall(text) if language == "text")
    assert done.stdout == shown


def run(line: str, folder: Path, package: Path) -> subprocess.CompletedProcess[str]:
    paths = (str(package), os.environ.get("PYTHONPATH", ""))
    line = line.replace("PYTHONPATH=.", "PYTHONPATH=.:$PYTHONPATH")
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }
    return subprocess.run(
        ["bash", "-c", line], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
