# SPDX-License-Identifier: Apache-2.0
"""Commands in the documentation work: `sh run` blocks are executed, all others name what exists."""

import importlib.metadata
import math
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from hydra import compose, initialize_config_module

from verl_kernel.cli import COMMANDS
from verl_kernel.study.comparisons import effect
from verl_kernel.study.plan import read_study
from verl_kernel.study.runs import read_rows
from verl_kernel.study.summary import interval

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


def test_the_figures_of_the_readme_are_those_of_the_recorded_run():
    steps = pd.read_json(ROOT / "recipes/cpu_quickstart/steps.jsonl", lines=True)
    first, last = steps.head(5).mean(), steps.tail(5).mean()
    readme = " ".join((ROOT / "README.md").read_text().split())
    recipe = (ROOT / "recipes/cpu_quickstart/README.md").read_text()
    for key in ("kernel/correct_rate", "kernel/fast@1.2", "kernel/hack_rate"):
        assert f"{first[key]:.0%} → {last[key]:.0%}".replace("%", " %") in readme
        assert f"| {first[key]:.2f} | {last[key]:.2f} |" in recipe


def test_the_effects_on_the_pages_are_those_of_the_study():
    made = (ROOT / "recipes/cpu_study/data/table.md").read_text()
    rows = re.findall(r"\| ([a-z][^|]*) \|[^|]*\|( [+-]\S+ \| \S+ to \S+ )\|", (ROOT / "docs/study.md").read_text())
    readme = re.findall(r"\| (coverage|correct|decoys) \|( [+-]\S+ \| \S+ to \S+ )\|", (ROOT / "README.md").read_text())
    assert len(rows) == 14 and len(readme) == 6
    for figure, seen in [*rows, *readme]:
        assert re.search(rf"\| {re.escape(figure)} \|[^|]*\|{re.escape(seen)}\|", made), (figure, seen)


def test_students_intervals_have_the_signs_that_were_expected_as_the_study_says():
    study = read_study(ROOT / "recipes/cpu_study/study.yaml")
    rows = read_rows(ROOT / "recipes/cpu_study/data/study.jsonl")
    found = [(one, effect(rows, one.arms, one.figure)) for one in study.comparisons]
    run = [(one, interval(known.differences)) for one, known in found if known is not None]
    assert len(run) == 5
    for one, known in run:
        assert math.copysign(1, one.expected) * known.mean > known.half, one.name


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
