# SPDX-License-Identifier: Apache-2.0
"""Other trainers and harnesses, whose packages contradict those of this environment; a task and two answers to it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
FUSED, WRONG = (f"```python\n{(EXAMPLES / f'{name}.py').read_text()}```" for name in ("fused", "wrong"))
"""A right answer to the example's task and a wrong one."""


def one_task(folder: Path) -> Path:
    """Write the suite of the example's task into a folder, and return it."""
    (tasks := folder / "tasks").mkdir()
    (tasks / "one.py").write_text((EXAMPLES / "reference.py").read_text())
    return tasks


def site(name: str) -> Path:
    """The folder of what requirements/adapters names; skips a test where it is not there."""
    folder = ROOT / "outputs" / "adapters" / name
    if not (folder / ".whole").exists():
        pytest.skip(f"outputs/adapters/{name} is not there or not whole: `make adapters-env` installs it")
    return folder


def variables(name: str) -> dict[str, str]:
    """Variables of a shell where these packages come first."""
    paths = (site(name), EXAMPLES / "verifiers", ROOT)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "OMP_NUM_THREADS": "1"}


def said_by(environment: dict[str, str], folder: Path, *words: str | Path) -> Any:
    """Run a module of Python's (`-m WORDS`) in a folder, and return the JSON of the last line that it prints."""
    command = [sys.executable, "-m", *map(str, words)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])
