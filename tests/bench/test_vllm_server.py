# SPDX-License-Identifier: Apache-2.0
"""The life of a server that a bench starts: a stand-in package `vllm` in real processes.

vLLM itself is started by tests/e2e.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.env.waiting import until
from verl_kernel.bench.models import vllm_server
from verl_kernel.bench.models.vllm_server import VllmServer
from verl_kernel.errors import ConfigError, EndpointError, EnvironmentNotReady

pytestmark = pytest.mark.processes

STAND_IN = """
import json, os, signal, subprocess, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

class Handler(BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_GET(self):
        right = self.headers["Authorization"] == "Bearer " + os.environ["VLLM_API_KEY"]
        self.send_response(200 if right else 401)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

def main():
    arguments = sys.argv
    folder = Path(arguments[2])
    if (folder / "broken").exists():
        print("ValueError: the stand-in has no weights")
        sys.exit(1)
    # An engine that does not heed SIGTERM, as one that hangs does not.
    engine = subprocess.Popen(
        [sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"]
    )
    (folder / "started.json").write_text(json.dumps({"argv": arguments, "pids": [os.getpid(), engine.pid]}))
    port = int(arguments[arguments.index("--port") + 1])
    HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""
OWNER = """
import sys, time
from pathlib import Path
from verl_kernel.bench.models.vllm_server import VllmServer
with VllmServer(Path(sys.argv[1]), Path(sys.argv[1]) / "log", start_s=60):
    print("answers", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def model(tmp_path, monkeypatch):
    package = tmp_path / "site" / "vllm" / "entrypoints" / "cli"
    package.mkdir(parents=True)
    for folder in (package, package.parent, package.parents[1]):
        (folder / "__init__.py").write_text("")
    (package / "main.py").write_text(STAND_IN)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'site'}{os.pathsep}{Path(__file__).parents[2]}")
    monkeypatch.setattr(vllm_server, "_GRACE_S", 0.5)
    monkeypatch.setattr(vllm_server, "_PAUSE_S", 0.05)
    folder = tmp_path / "toy"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


def started(model):
    return json.loads((model / "started.json").read_text())


def wait_for_the_end_of(pids):
    until(lambda: not any(_runs(pid) for pid in pids))


def _runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_server_answers_and_ends_with_all_that_it_started(model):
    with VllmServer(model, model / "log", ["--max-model-len", "64"], start_s=60) as server:
        assert (server.ended, server.model) == (None, "toy")
        found = started(model)
        assert found["argv"][:3] == ["vllm", "serve", str(model)]
        assert found["argv"][-2:] == ["--max-model-len", "64"]
        assert all(_runs(pid) for pid in found["pids"])
    wait_for_the_end_of(found["pids"])


@pytest.mark.exhaustive
def test_an_error_in_the_block_ends_it_too(model):
    with pytest.raises(KeyboardInterrupt), VllmServer(model, model / "log", start_s=60):
        raise KeyboardInterrupt
    wait_for_the_end_of(started(model)["pids"])


def test_a_server_that_ends_at_once_is_quoted(model):
    (model / "broken").write_text("")
    with pytest.raises(EndpointError, match="has ended; .*ValueError: the stand-in has no weights"):
        VllmServer(model, model / "log", start_s=60).__enter__()


@pytest.mark.exhaustive
def test_a_server_that_dies_says_so(model):
    with VllmServer(model, model / "log", start_s=60) as server:
        pids = started(model)["pids"]
        os.kill(pids[0], signal.SIGKILL)
        wait_for_the_end_of(pids[:1])
        # A killed process is a zombie before its last thread is gone.
        assert "has ended" in until(lambda: server.ended)
    wait_for_the_end_of(pids)


def test_a_server_that_never_answers_is_given_up(model):
    server = VllmServer(model, model / "log", start_s=0.0)
    with pytest.raises(EndpointError, match="did not answer within 0 s"):
        server.__enter__()


@pytest.mark.exhaustive
def test_a_killed_owner_leaves_nothing_behind(model):
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(model)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout.readline() == "answers\n"
    pids = started(model)["pids"]
    owner.kill()
    owner.wait()
    owner.stdout.close()
    wait_for_the_end_of(pids)


def test_a_folder_without_a_model_and_a_machine_without_vllm(model, tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match="holds no config.json"):
        VllmServer(tmp_path, tmp_path / "log")
    monkeypatch.setattr(vllm_server, "find_spec", lambda name: None)
    with pytest.raises(EnvironmentNotReady, match="--vllm needs vLLM"):
        VllmServer(model, model / "log")
