# SPDX-License-Identifier: Apache-2.0
"""OpenEnv serves the environment, its client plays an episode, and its validator passes."""

import socket
import subprocess
import sys

import pytest

from tests.adapters.packages import one_task, said_by, variables
from tests.env.waiting import until
from tests.service.serving import client

pytestmark = [pytest.mark.exhaustive, pytest.mark.processes, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    tasks = one_task(tmp_path_factory.mktemp("openenv"))
    return {**variables("openenv"), "KERNEL_SUITE": str(tasks), "KERNEL_TURNS": "2", "KERNEL_DEVICE": "cpu"}


@pytest.fixture(scope="module")
def address(environment, tmp_path_factory):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("log") / "log"
    words = ["-m", "uvicorn", "--factory", "verl_kernel.adapters.openenv:app", f"--port={port}"]
    with log.open("w") as out:
        process = subprocess.Popen([sys.executable, *words], env=environment, stdout=out, stderr=out)
    try:
        until(lambda: "running on" in log.read_text() or process.poll() is not None, 600)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=300)


def test_an_episode_has_the_verdicts_of_the_gym(environment, address, tmp_path):
    begun, wrong, fused = said_by(environment, tmp_path, "tests.adapters.openenv_session", address)
    assert "class Model" in begun["message"]
    assert (wrong["status"], wrong["reward"], wrong["done"]) == ("incorrect", 0, False)
    assert (fused["status"], fused["done"]) == ("ok", True)
    assert fused["reward"] > 1
    assert fused["speedup"] > 1


def test_the_validator_of_openenv_passes(environment, address):
    words = [sys.executable, "-m", "openenv.cli", "validate", "--url", address]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "fail" not in done.stdout.lower().replace('"failed": 0', ""), done.stdout


def test_a_server_of_openenv_answers_after_its_validation(address):
    with client(address) as http:
        assert http.get("/health").status_code == 200
