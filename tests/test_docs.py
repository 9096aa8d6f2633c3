# SPDX-License-Identifier: Apache-2.0
"""Commands in the documentation work: `sh run` blocks are executed, all others name what exists."""

import importlib.metadata
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hydra import compose, initialize_config_module

from verl_kernel.cli import COMMANDS

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/*/*.md"), *ROOT.glob("recipes/*/README.md")]
)
EXTRAS = importlib.metadata.metadata("verl-kernel").get_all("Provides-Extra")
KINDS = {"run", "long", "gpu", "here"}
"""`here` blocks run in a folder with the files of their page: tests/test_howto.py."""
FENCE = re.compile(r"^```(\S*) ?(\S*)\n(.*?)^```", re.M | re.S)


def commands(*kinds: str) -> list[tuple[str, str]]:
    """(page, command line) of all shell blocks of these kinds."""
    found = []
    for page in PAGES:
        for language, kind, body in FENCE.findall(page.read_text()):
            if language in ("sh", "bash", "shell") and kind in kinds:
                lines = body.replace("\\\n", " ").splitlines()
                found += [(str(page.relative_to(ROOT)), line) for line in lines if line.strip()]
    return found


def test_every_shell_block_says_how_it_is_checked():
    for page in PAGES:
        for language, kind, body in FENCE.findall(page.read_text()):
            assert language != "" or not body.startswith("$"), (page, body)
            if language in ("sh", "bash", "shell"):
                assert kind in KINDS, (page, body)


@pytest.mark.slow
@pytest.mark.parametrize(("page", "line"), commands("run"))
def test_a_run_block_runs(page, line):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", line], cwd=ROOT, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("page", "line"), commands("long", "gpu"))
def test_what_a_long_block_names_exists(page, line):
    words = [word for word in shlex.split(line, comments=True) if not re.fullmatch(r"[A-Z_]+=\S*", word)]
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.M)
    elif words[0] == "pip":
        assert words[1] == "install" and installable(words[2:])
    elif words[0] == "verl-kernel":
        assert words[1] in COMMANDS
    elif words[:2] == ["python", "-m"]:
        assert words[2] == "verl.trainer.main_ppo"
        overrides_compose(words[3:])
    elif words[0].startswith("recipes/"):
        assert os.access(ROOT / words[0], os.X_OK)
        recipe = {"cpu_study": "cpu_hard"}.get(Path(words[0]).parent.name, Path(words[0]).parent.name)
        suffix = Path(words[0]).stem.removeprefix("run")
        overrides_compose([f"--config-name={recipe}{suffix}", *words[1:]])
    else:
        assert words[0] == "python" and (ROOT / words[1]).is_file()


def installable(words: list[str]) -> bool:
    """A lock file that exists, the checkout, our wheel with an extra that exists, or a locked package's version."""
    lock = (ROOT / "requirements" / "cpu.txt").read_text().splitlines()
    wheel = f"dist/verl_kernel-{importlib.metadata.version('verl-kernel')}-py3-none-any.whl"
    match [word for word in words if word != "--no-deps"]:
        case ["-r", file]:
            return (ROOT / file).is_file()
        case ["-e", "."]:
            return True
        case [requirement]:
            return requirement in lock or requirement in {f"{wheel}[{extra}]" for extra in EXTRAS}
    return False


def overrides_compose(words: list[str]) -> None:
    names = [word.partition("=")[2] for word in words if word.startswith("--config-name=")]
    with initialize_config_module("verl.trainer.config", version_base=None):
        compose(*(names or ["ppo_trainer"]), overrides=[word for word in words if not word.startswith("--")])


def test_links_and_paths_between_pages_exist():
    for page in PAGES:
        text = page.read_text()
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", FENCE.sub("", text)):
            assert (page.parent / target).exists(), (page.name, target)
        made = {name for language, name, _ in FENCE.findall(text) if language == "python"}
        for target in re.findall(r"`((?:verl_kernel|recipes|examples|docs|requirements)/[\w./]+)`", text):
            assert target in made or (ROOT / target).exists(), (page.name, target)
