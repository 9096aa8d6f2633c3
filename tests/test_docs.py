# SPDX-License-Identifier: Apache-2.0
"""The tutorial and the how-to pages hold complete examples, written down and run as a reader would."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.thinned import thinned

ROOT = Path(__file__).parents[1]
TUTORIAL = ROOT / "docs" / "tutorial.md"
HOWTO = sorted((ROOT / "docs" / "howto").glob("*.md"))
PAGES = [TUTORIAL, *HOWTO]
RUFF = Path(sys.executable).with_name("ruff")
FENCE = re.compile(r"^```(\S+) ?(\S*)\n(.*?)^```", re.M | re.S)


@pytest.mark.slow
@pytest.mark.parametrize("page", thinned(PAGES, 4), ids=lambda page: page.stem)
def test_the_example_of_a_page_runs(page, tmp_path):
    blocks = FENCE.findall(page.read_text())
    commands = "".join(body for language, kind, body in blocks if (language, kind) == ("sh", "here")).splitlines()
    assert commands
    package = tmp_path if any(language == "diff" for language, *_ in blocks) else ROOT
    if package == tmp_path:
        copy_package(tmp_path)
    save(page, tmp_path)
    for line in commands:
        done = run(line, tmp_path, package)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "pytest" not in line or " passed" in done.stdout


@pytest.mark.parametrize("page", HOWTO, ids=lambda page: page.stem)
def test_what_a_page_saves_in_a_checkout_passes_the_linter(page, tmp_path):
    copy_package(tmp_path)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    files = save(page, tmp_path)
    for words in (["check"], ["format", "--check"]):
        done = subprocess.run([RUFF, *words, *files], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_linter_looks_at_what_a_page_saves(tmp_path):
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "saved.py").write_text("import os\n")
    done = subprocess.run([RUFF, "check", "saved.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert "F401" in done.stdout
    assert "D100" in done.stdout


@pytest.mark.exhaustive
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


def copy_package(folder: Path) -> None:
    """What a page's diffs change, where its modules are saved."""
    shutil.copytree(ROOT / "verl_kernel", folder / "verl_kernel")


def save(page: Path, folder: Path) -> list[str]:
    """Write a page's modules and apply its diffs; returns the files made or changed."""
    blocks = FENCE.findall(page.read_text())
    made = {name: body for language, name, body in blocks if language == "python"}
    for name, body in made.items():
        (folder / name).write_text(body)
    changes = [body for language, _, body in blocks if language == "diff"]
    for diff in changes:
        subprocess.run(["git", "apply"], cwd=folder, input=diff, text=True, check=True)
    changed = [name for diff in changes for name in re.findall(r"^\+\+\+ b/(\S+\.py)", diff, re.M)]
    return [*made, *changed]


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
