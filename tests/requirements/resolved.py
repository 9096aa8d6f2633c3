# SPDX-License-Identifier: Apache-2.0
"""Every extra resolves from a plain index, on every Python: `make check-extras`, which needs a package index."""

import importlib.metadata
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import pytest
from wheels import uv_options

ROOT = Path(__file__).parents[2]
EXTRAS = ("none", *importlib.metadata.metadata("verl-kernel").get_all("Provides-Extra"))
PYTHONS = ("3.10", "3.11", "3.12")
CASES = [*product(EXTRAS, PYTHONS), ("none", "3.13"), ("none", "3.14")]
"""What trains has three Pythons, the gym alone two more."""


def resolve(extra: str, python: str) -> subprocess.CompletedProcess[str]:
    """As pip would take them: without the checkout's settings of uv, and without a CPU build of torch in reach."""
    command = [
        Path(sys.executable).parent / "uv", "pip", "compile", ROOT / "pyproject.toml", "--quiet", "--no-config",
        f"--python-version={python}", "--python-platform=x86_64-manylinux_2_28", "--no-python-downloads",
        *uv_options({}),
    ]  # fmt: skip
    chosen = [] if extra == "none" else [f"--extra={extra}"]
    return subprocess.run([*command, *chosen], capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def resolved():
    """All combinations, a few at a time: each mostly waits for the index."""
    with ThreadPoolExecutor(4) as pool:
        yield {(extra, python): pool.submit(resolve, extra, python) for extra, python in CASES}


@pytest.mark.parametrize(("extra", "python"), CASES)
def test_an_extra_resolves_from_a_plain_index(extra, python, resolved):
    done = resolved[extra, python].result()
    if re.search(r"dns error|error sending request|timed out", done.stderr):
        pytest.skip("no package index in reach")
    assert done.returncode == 0, done.stderr
    assert bool(re.search(r"^verl==0\.9\.", done.stdout, re.M)) == (extra in ("verl", "cpu", "gpu"))
