# SPDX-License-Identifier: Apache-2.0
"""OpenEnv serves the environment, its client plays an episode, and its validator passes."""

import json
import socket
import subprocess
import sys

import pytest

from tests.adapters.fetching import fetched, one_task
from tests.service.serving import client, wait_for

OPENENV = "openenv==0.10.0"
pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Variables of a shell where OpenEnv, whose packages contradict ours, comes first."""
    folder = tmp_path_factory.mktemp("openenv")
    variables = fetched(folder, OPENENV)
    tasks = one_task(folder)
    return {**variables, "KERNEL_SUITE": str(tasks), "KERNEL_TURNS": "2", "KERNEL_DEVICE": "cpu"}


@pytest.fixture(scope="module")
def address(environment, tmp_path_factory):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("log") / "log"
    words = ["-m", "uvicorn", "--factory", "verl_kernel.adapters.openenv:app", f"--port={port}"]
    with log.open("w") as out:
        process = subprocess.Popen([sys.executable, *words], env=environment, stdout=out, stderr=out)
    try:
        wait_for(lambda: "running on" in log.read_text() or process.poll() is not None, 120)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=30)


def run(environment, *words):
    done = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_an_episode_has_the_verdicts_of_the_gym(environment, address):
    begun, wrong, fused = json.loads(run(environment, "-m", "tests.adapters.openenv_session", address).splitlines()[-1])
    assert "class Model" in begun["message"]
    assert (wrong["status"], wrong["reward"], wrong["done"]) == ("incorrect", 0, False)
    assert (fused["status"], fused["done"]) == ("ok", True)
    assert fused["reward"] > 1
    assert fused["speedup"] > 1


def test_the_validator_of_openenv_passes(environment, address):
    said = run(environment, "-m", "openenv.cli", "validate", "--url", address)
    assert "fail" not in said.lower().replace('"failed": 0', ""), said
    with client(address) as http:
        assert http.get("/health").status_code == 200
