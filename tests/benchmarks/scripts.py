# SPDX-License-Identifier: Apache-2.0
"""Scripts of benchmarks/ as processes, programs for them, and published programs where these are at hand."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PUBLISHED = Path(os.environ.get("KERNELBENCH") or "/nowhere").resolve()
TIMES = PUBLISHED / "h100_eager_ms.json"
needs_published = pytest.mark.skipif(
    not TIMES.is_file(),
    reason="KERNELBENCH names no folder with level1, level2 and h100_eager_ms.json, published times of eager runs",
)
PROGRAM = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, *width):
        super().__init__()
        self.layer = nn.Linear(*width, *width) if width else None

    def forward(self, x, y):
        return {forward}

def get_inputs():
    return [torch.rand({x}), torch.rand({y})]

def get_init_inputs():
    return [{width}]
"""


def program(forward: str, x: str = "1", y: str = "1", width: str = "") -> str:
    return PROGRAM.format(forward=forward, x=x, y=y, width=width)


def bench(script: str, *words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, f"benchmarks/{script}.py", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
