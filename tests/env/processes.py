# SPDX-License-Identifier: Apache-2.0
"""Python in a process of its own: Triton decides while it is imported whether to interpret."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def printed(*words: object, **variables: str) -> str:
    """What Python prints, started with these words in the repository's root; fails the test if it fails."""
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))  # where another Triton may lie
    kept = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command, environment = [sys.executable, *map(str, words)], {**kept, "PYTHONPATH": paths, **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT, timeout=550)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout
