# SPDX-License-Identifier: Apache-2.0
"""What the pages show is run as a reader would: `run` blocks in the checkout, `here` blocks in a folder of their own.

What all other blocks name exists: tests/repository/test_pages.py.
"""

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.repository.pages import HOWTOS, PAGES, ROOT, blocks, commands, copy_package, lines, save
from tests.tiers import thinned

pytestmark = pytest.mark.slow
RUN = {line: page for page, line in commands("run")}
"""A page for each command line, README.md's first."""


def run(line: str, folder: Path = ROOT, package: Path = ROOT) -> str:
    """What a command line prints in a folder, where the package stands in another."""
    paths = (str(package), os.environ.get("PYTHONPATH", ""))
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }
    words = ["bash", "-c", line.replace("PYTHONPATH=.", "PYTHONPATH=.:$PYTHONPATH")]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("line", thinned(RUN, len(RUN)), ids=lambda line: f"{RUN[line]}: {line[:40]}")
def test_a_run_block_runs(line):
    run(line)


@pytest.mark.processes
def test_the_notebook_runs(tmp_path):
    cells = json.loads((ROOT / "examples/first_verdict.ipynb").read_text())["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    (tmp_path / "cells.py").write_text(f"if __name__ == '__main__':\n{textwrap.indent(code, ' ')}")
    printed = run(f"python {tmp_path / 'cells.py'}", ROOT / "examples").splitlines()
    assert printed[0].startswith("incorrect: the output differs")
    assert printed[1].startswith("ok ")
    assert float(printed[-1]) > 1


@pytest.mark.exhaustive
@pytest.mark.parametrize("page", [*HOWTOS, "docs/tutorial.md"])
def test_the_example_of_a_page_runs(page, tmp_path):
    found = lines(page, "here")
    assert found
    package = tmp_path if any(block.language == "diff" for block in blocks(page)) else ROOT
    if package == tmp_path:
        copy_package(tmp_path)
    save(page, tmp_path)
    for line in found:
        printed = run(line, tmp_path, package)
        assert "pytest" not in line or " passed" in printed


@pytest.mark.exhaustive
def test_the_tutorial_shows_what_its_rewards_print(tmp_path):
    save("docs/tutorial.md", tmp_path)
    (tmp_path / "right.py").write_text((tmp_path / "wrong.py").read_text().replace("/ BLOCK", "/ columns"))
    (shown,) = (block.body for block in blocks("docs/tutorial.md") if block.language == "text")
    assert run("python rewards.py", tmp_path) == shown


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["stale", "ada"])
def test_the_methods_tables_are_made_of_their_rows(name, tmp_path):
    kept = ROOT / "data" / "methods"
    shutil.copy(kept / f"{name}.jsonl", tmp_path)
    run(f"python benchmarks/methods/{name}_figure.py --out {tmp_path}")
    made = (tmp_path / f"{name}.md").read_text()
    assert made == (kept / f"{name}.md").read_text()
    assert [part for part in made.strip().split("\n\n") if part not in PAGES["docs/notes/methods.md"]] == []
