# SPDX-License-Identifier: Apache-2.0
"""Cases that need a Python of their own: Triton decides while it is imported whether to interpret."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]


def run_cases(script: Path, variables: dict[str, str]) -> Any:
    """What a script of cases prints as JSON, with these variables in its environment."""
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))  # where another Triton may lie
    kept = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment = {**kept, **variables, "PYTHONPATH": paths}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)
