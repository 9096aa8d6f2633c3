# SPDX-License-Identifier: Apache-2.0
"""Packages that contradict those of this environment, in a folder of their own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def one_task(folder: Path) -> Path:
    """Write the suite of the example's task into a folder, and return it."""
    (tasks := folder / "tasks").mkdir()
    (tasks / "one.py").write_text((ROOT / "examples" / "reference.py").read_text())
    return tasks


def fetched(folder: Path, *words: str) -> dict[str, str]:
    """Install packages (`uv pip install WORDS`) into a folder, and return the variables of a shell with them."""
    command = ["uv", "pip", "install", "--quiet", "--python", sys.executable, "--target", str(folder / "site"), *words]
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    paths = (folder / "site", ROOT / "examples" / "verifiers", ROOT)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "OMP_NUM_THREADS": "1"}
