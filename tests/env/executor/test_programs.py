# SPDX-License-Identifier: Apache-2.0
"""Whole kernels through Triton's compiler and the executor: results beside torch's, races, prices, and the page."""

import functools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[2]
PROGRAMS = re.findall(r"^@program\ndef (\w+)", (FOLDER / "programs.py").read_text(), re.M)
RACES = (FOLDER / "race_programs.py").read_text()
RACING, HONEST = (re.findall(rf'^    "({kind}_\w+)":', RACES, re.M) for kind in ("racing", "honest"))

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]


def run(folder, *words, **more):
    """What Python prints, with this folder for Triton's cache and more variables of the environment."""
    kept = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment = {**kept, "PYTHONPATH": str(ROOT), "TRITON_CACHE_DIR": str(folder), **more}
    done = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, timeout=550)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What a module of this folder tells by name, from one run in a process of its own."""

    @functools.cache
    def told(name):
        return json.loads(run(tmp_path_factory.mktemp("triton"), "-m", f"tests.env.executor.{name}").splitlines()[-1])

    return told


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_does_what_torch_does(told, name):
    assert told("programs")[name] is None


def test_the_example_of_the_page_runs(tmp_path):
    (example,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "executor.md").read_text(), re.M | re.S)
    (tmp_path / "example.py").write_text(example)
    run(tmp_path, str(tmp_path / "example.py"))


def test_there_are_many_programs_of_both_kinds():
    assert min(len(RACING), len(HONEST)) >= 15


@pytest.mark.parametrize("name", HONEST)
def test_nothing_is_said_of_honest_programs(told, name):
    kind, sentence, not_watched, _ = told("race_programs")[name]
    assert (kind, not_watched) == (None, []), sentence


@pytest.mark.parametrize("name", RACING)
def test_races_are_found(told, name):
    kind, sentence, _, line = told("race_programs")[name]
    assert kind == "race"
    assert re.search(r"which (block \d+ \(warp \d+\)|warp \d+ of the block) has (stored|loaded|changed)", sentence)
    assert re.search(r"\(block \d+, warp \d+, lane \d+\)$", sentence)
    assert line[0].endswith("race_programs.py")


def test_a_race_names_both_sides(told):
    _, sentence, _, line = told("race_programs")["racing_shift_in_place"]
    assert "tl.store(x_ptr + where + TO, x)" in RACES.splitlines()[line[1] - 1]
    assert "which block 0 (warp 0) has loaded from" in sentence
    assert "(block 1, warp 0, lane 0)" in sentence


ORDERS = [
    ("stride 1", "stride 2", 1.3, 2.1), ("stride 2", "stride 8", 2, 5), ("half of it masked out", "stride 1", 1.8, 2.2),
    ("a half", "half of it masked out", 1, 1.15), ("stride 1", "spilled", 2, 20), ("16 blocks", "1 blocks", 10, 20),
    ("512 blocks", "16 blocks", 5, 32), ("1 of long rows", "2 of long rows", 1.8, 2.2),
    ("1 of short rows", "2 of short rows", 1, 1.5), ("half", "half, small tiles", 1.5, 10),
    ("half", "naive half", 10, 200), ("half", "tf32", 1.3, 3), ("tf32", "tf32x3", 1.5, 3.5), ("tf32", "ieee", 1.5, 10),
    ("8 integer", "256 integer", 20, 40), ("256 float", "256 integer", 4, 16), ("256 float", "256 exp", 3, 12),
    ("256 integer", "256 division", 2, 10), ("one row for all", "a row for each", 1.3, 1.6),
    ("gather in order", "gather at random", 1.2, 9), ("gather few", "gather in order", 1.1, 1.6),
    ("copied", "transposed", 1, 1.3), ("large, twice near", "large, twice far", 1.6, 2),
    ("small, twice near", "small, twice far", 1, 1),
]  # fmt: skip


@pytest.mark.parametrize("cheaper, dearer, least, most", ORDERS)
def test_a_kernel_is_cheaper_than_another(told, cheaper, dearer, least, most):
    """As on every GPU."""
    prices = told("priced")
    assert least <= prices[dearer] / prices[cheaper] * (1 + 1e-9)
    assert prices[dearer] <= most * prices[cheaper]
