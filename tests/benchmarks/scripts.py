# SPDX-License-Identifier: Apache-2.0
"""Scripts of benchmarks/ as processes, programs for them, and published programs where these are at hand."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.env.programs import reference

ROOT = Path(__file__).parents[2]
PUBLISHED = Path(os.environ.get("KERNELBENCH") or "/nowhere").resolve()
TIMES = PUBLISHED / "h100_eager_ms.json"
needs_published = pytest.mark.skipif(
    not TIMES.is_file(),
    reason="KERNELBENCH names no folder with level1, level2 and h100_eager_ms.json, published times of eager runs",
)


def program(forward: str, x: str = "1", y: str = "1", width: str = "") -> str:
    """A reference whose layer has this width."""
    layer = f"self.layer = nn.Linear({width}, {width})" if width else "pass"
    return reference(forward, f"torch.rand({x}), torch.rand({y})", "x, y", layer)


def bench(script: str, *words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, f"benchmarks/{script}.py", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
