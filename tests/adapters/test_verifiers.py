# SPDX-License-Identifier: Apache-2.0
"""verifiers evaluates a model's endpoint on the taskset, by its own command."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.adapters.fetching import ROOT, fetched, one_task
from tests.service.serving import wait_for

VERIFIERS = "verifiers==0.4.0"
pytestmark = [
    *(pytest.mark.processes, pytest.mark.slow, pytest.mark.timeout(900)),
    pytest.mark.skipif(sys.version_info < (3, 11), reason="verifiers needs Python 3.11"),
]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("verifiers")
    variables = fetched(folder, VERIFIERS)
    one_task(folder)
    return folder, {**variables, "OPENAI_API_KEY": "none"}


def is_listening(port):
    with socket.socket() as line:
        return line.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize(("name", "correct"), [("fused", 1.0), ("wrong", 0.0)])
def test_an_evaluation_has_the_verdict_of_the_gym(prepared, name, correct):
    folder, environment = prepared
    (folder / name).write_text(f"```python\n{(ROOT / 'examples' / f'{name}.py').read_text()}```")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    endpoint = [sys.executable, str(Path(__file__).with_name("streaming_endpoint.py")), str(port), str(folder / name)]
    model = subprocess.Popen(endpoint)
    try:
        wait_for(lambda: is_listening(port))
        words = [
            *("kernelgym", "-n", "1", "-m", "one", "--no-push", "--env.agent.harness.id", "null"),
            *("--env.agent.runtime.type", "subprocess", "--env.taskset.suite", folder / "tasks"),
            *("--env.taskset.task.device", "cpu", "--client.base-url", f"http://127.0.0.1:{port}/v1"),
            *("--client.api-key-var", "OPENAI_API_KEY", "--output-dir", folder / "out", "--run.dir", name),
        ]
        command = [sys.executable, str(folder / "site" / "bin" / "vf-eval"), *map(str, words)]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    finally:
        model.terminate()
        model.wait()
    assert done.returncode == 0, done.stdout + done.stderr
    (trace,) = map(json.loads, (folder / "out" / name / "traces.jsonl").read_text().splitlines())
    text = json.dumps(trace)
    assert f'"correct": {correct}' in text, text[:3000]
