# SPDX-License-Identifier: Apache-2.0
"""Whole kernels through Triton's compiler and the executor, against torch; and the page on the executor."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NAMES = re.findall(r"^@program\ndef (\w+)", (Path(__file__).parent / "programs.py").read_text(), re.M)


def run(folder, *words):
    kept = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment = {**kept, "PYTHONPATH": str(ROOT), "TRITON_CACHE_DIR": str(folder)}
    return subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, timeout=500)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    done = run(tmp_path_factory.mktemp("triton"), "-m", "tests.env.executor.programs")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_program_does_what_torch_does(outcomes, name):
    assert outcomes[name] is None, outcomes[name]


@pytest.mark.slow
def test_the_example_of_the_page_runs(tmp_path):
    (example,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "executor.md").read_text(), re.M | re.S)
    (tmp_path / "example.py").write_text(example)
    done = run(tmp_path, str(tmp_path / "example.py"))
    assert done.returncode == 0, done.stderr
