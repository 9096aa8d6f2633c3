# SPDX-License-Identifier: Apache-2.0
"""verifiers evaluates a model's endpoint on the taskset, by its own command."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.adapters.packages import FUSED, WRONG, one_task, site, variables
from tests.env.waiting import until
from tests.service.serving import free_port, is_listening

pytestmark = [
    *(pytest.mark.exhaustive, pytest.mark.processes, pytest.mark.slow, pytest.mark.timeout(900)),
    pytest.mark.skipif(sys.version_info < (3, 11), reason="verifiers needs Python 3.11"),
]


@pytest.fixture
def endpoint(request, tmp_path):
    """The port of a model that always gives the test's answer."""
    (tmp_path / "answer").write_text(request.param)
    port = free_port()
    words = [Path(__file__).with_name("streaming_endpoint.py"), str(port), tmp_path / "answer"]
    with subprocess.Popen([sys.executable, *words]) as model:
        until(lambda: is_listening(port))
        yield port
        model.terminate()


@pytest.mark.parametrize(
    ("endpoint", "correct"), [(FUSED, 1.0), (WRONG, 0.0)], indirect=["endpoint"], ids=["fused", "wrong"]
)
def test_an_evaluation_has_the_verdict_of_the_gym(endpoint, correct, tmp_path):
    words = [
        *("kernelgym", "-n", "1", "-m", "one", "--no-push", "--env.agent.harness.id", "null"),
        *("--env.agent.runtime.type", "subprocess", "--env.taskset.suite", one_task(tmp_path)),
        *("--env.taskset.task.device", "cpu", "--client.base-url", f"http://127.0.0.1:{endpoint}/v1"),
        *("--client.api-key-var", "OPENAI_API_KEY", "--output-dir", tmp_path / "out", "--run.dir", "run"),
    ]
    command = [sys.executable, site("verifiers") / "bin" / "vf-eval", *map(str, words)]
    environment = {**variables("verifiers"), "OPENAI_API_KEY": "none"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stdout + done.stderr
    (trace,) = (tmp_path / "out" / "run" / "traces.jsonl").read_text().splitlines()
    assert f'"correct": {correct}' in json.dumps(json.loads(trace)), trace[:3000]
