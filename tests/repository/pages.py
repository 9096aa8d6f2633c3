# SPDX-License-Identifier: Apache-2.0
"""The pages of the documentation: their text, the commands of their shell blocks, the files that they save."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PATTERNS = ("README.md", "*.md", "docs/*.md", "docs/*/*.md", "recipes/*/README.md", "[a-z]*/README.md")
PAGES = {str(path.relative_to(ROOT)): path.read_text() for glob in PATTERNS for path in sorted(ROOT.glob(glob))}
"""Texts of all pages by their paths; README.md comes first."""
HOWTOS = [page for page in PAGES if page.startswith("docs/howto/")]
FENCE = re.compile(r"^```(\S*) ?(\S*)\n(.*?)^```", re.M | re.S)


class Block(NamedTuple):
    """A fenced block: `name` says how a shell block is tested, or where a reader saves the block."""

    language: str
    name: str
    body: str

    @property
    def is_shell(self) -> bool:
        return self.language in ("sh", "bash", "shell")


def blocks(page: str) -> list[Block]:
    return [Block(*found) for found in FENCE.findall(PAGES[page])]


def lines(page: str, *kinds: str) -> list[str]:
    """Command lines in the shell blocks of these kinds."""
    bodies = (block.body for block in blocks(page) if block.is_shell and block.name in kinds)
    return [line for body in bodies for line in body.replace("\\\n", " ").splitlines() if line.strip()]


def commands(*kinds: str) -> list[tuple[str, str]]:
    """(page, command line) of all shell blocks of these kinds."""
    return [(page, line) for page in PAGES for line in lines(page, *kinds)]


def save(page: str, folder: Path) -> list[str]:
    """Write a page's modules and apply its diffs to the package; returns the files made or changed."""
    made = {block.name: block.body for block in blocks(page) if block.language == "python"}
    for name, body in made.items():
        (folder / name).write_text(body)
    diffs = [block.body for block in blocks(page) if block.language == "diff"]
    for diff in diffs:
        subprocess.run(["git", "apply"], cwd=folder, input=diff, text=True, check=True)
    return [*made, *(name for diff in diffs for name in re.findall(r"^\+\+\+ b/(\S+\.py)", diff, re.M))]


def copy_package(folder: Path) -> None:
    """What a page's diffs change, where its modules are saved."""
    shutil.copytree(ROOT / "verl_kernel", folder / "verl_kernel", ignore=shutil.ignore_patterns("__pycache__"))
