# SPDX-License-Identifier: Apache-2.0
"""What docs/service.md shows works: its first command, and those that ask it, on another port."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.service.serving import Started
from verl_kernel.client.messages import LONGEST_WAIT_S, MOST_AT_ONCE
from verl_kernel.service.app import _ROUTES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "service.md").read_text()


@pytest.mark.exhaustive
@pytest.mark.processes
@pytest.mark.slow
def test_its_commands_its_program_and_its_client_run(tmp_path):
    (program,) = re.findall(r"^```python service\n(.*?)^```", PAGE, re.M | re.S)
    (line,) = (line for line in PAGE.splitlines() if line.startswith("verl-kernel eval"))
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    with Started(tmp_path, "--static-check=coverage", "--trials=5", "--num-judges=2") as service:
        asked = [text.replace("http://127.0.0.1:8008", service.address) for text in (line, program)]
        client = ["examples/serve/client.py", service.address]
        said = [
            subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=True)
            for command in (["bash", "-c", asked[0]], [sys.executable, "-c", asked[1]], [sys.executable, *client])
        ]
    assert re.match(r"ok \d", said[1].stdout), said
    assert re.match(r"ok simulated \d", said[2].stdout), said


def test_it_names_every_request():
    paths = {(method, route.path) for route in _ROUTES.routes for method in route.methods}
    for method, path in paths:
        assert path.replace("{name}", "ID").removeprefix("/v1") in PAGE.replace("/v1", ""), (method, path)


def test_its_limits_are_those_of_the_code():
    assert f"up to {MOST_AT_ONCE} candidates" in PAGE
    assert f"up to {LONGEST_WAIT_S:g} s for results" in PAGE
