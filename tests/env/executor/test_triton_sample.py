# SPDX-License-Identifier: Apache-2.0
"""A sample of Triton's own tests, where there is a copy of them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FOLDER = Path(os.environ.get("TRITON_TESTS") or ROOT.parent / "shared" / "triton" / "tests")
FILES = [FOLDER / f"test_{name}.py" for name in ("core", "conversions", "block_pointer", "tuple", "annotations")]


@pytest.mark.slow
@pytest.mark.skipif(not all(file.is_file() for file in FILES), reason="TRITON_TESTS names no copy of Triton's tests")
@pytest.mark.parametrize("is_watched", [False, True])
def test_a_sample_of_tritons_tests_passes(tmp_path, is_watched):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"PYTHONPATH": str(ROOT), "TRITON_CACHE_DIR": str(tmp_path)}
    environment |= {"EXECUTOR_CASES": "1", "EXECUTOR_SHARE": "0.3"}
    environment |= {"EXECUTOR_WATCH": "1"} if is_watched else {}
    words = ["-W", "ignore", "-m", "pytest", "-p", "tests.env.executor.triton_tests", "--device", "cpu", "-q"]
    words += ["--tb=short", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), *map(str, FILES)]
    command = [sys.executable, *words]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=550)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    (passed,) = re.findall(r"(\d+) passed", done.stdout)
    assert int(passed) > 30
