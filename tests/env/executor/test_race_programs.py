# SPDX-License-Identifier: Apache-2.0
"""Triton kernels with races, which are found, and their honest neighbours, of which nothing is said."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOURCE = Path(__file__).parent / "race_programs.py"
NAMES = re.findall(r"^@(?:racing|honest)\ndef (\w+)", SOURCE.read_text(), re.M)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    kept = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment = {**kept, "PYTHONPATH": str(ROOT), "TRITON_CACHE_DIR": str(tmp_path_factory.mktemp("triton"))}
    words = [sys.executable, "-m", "tests.env.executor.race_programs"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_there_are_as_many_honest_programs_as_others():
    racing = [name for name in NAMES if name.startswith("racing")]
    assert len(racing) >= 15
    assert len(NAMES) - len(racing) >= 15


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_races_are_found_and_nothing_else_is(outcomes, name):
    kind, sentence, not_watched, line = outcomes[name]
    if name.startswith("honest"):
        assert (kind, not_watched) == (None, []), sentence
        return
    assert kind == "race"
    assert re.search(r"which (block \d+ \(warp \d+\)|warp \d+ of the block) has (stored|loaded|changed)", sentence)
    assert re.search(r"\(block \d+, warp \d+, lane \d+\)$", sentence)
    assert line[0].endswith("race_programs.py")


@pytest.mark.slow
def test_a_race_names_both_sides(outcomes):
    _, sentence, _, line = outcomes["racing_shift_in_place"]
    code = SOURCE.read_text().splitlines()[line[1] - 1]
    assert "tl.store(x_ptr + where, x)" in code
    assert "which block 0 (warp 0) has loaded from" in sentence
    assert "(block 1, warp 0, lane 0)" in sentence
