# SPDX-License-Identifier: Apache-2.0
"""NeMo Gym's own web application serves the judges. Its package asks for Python 3.12; its code runs on 3.11."""

import json
import subprocess
import sys

import pytest

from tests.adapters.fetching import ROOT, fetched, one_task

NEMO = "nemo-gym==0.4.0"
NEEDS = "orjson itsdangerous devtools asttokens executing mlflow-skinny yappi gprof2dot pydot".split()
pytestmark = [
    *(pytest.mark.processes, pytest.mark.slow, pytest.mark.timeout(900)),
    pytest.mark.skipif(sys.version_info < (3, 11), reason="NeMo Gym needs Python 3.11"),
]


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nemo")
    fetched(folder, "--no-deps", "--python-version=3.12", NEMO)  # pure Python
    environment = fetched(folder, "--no-deps", *NEEDS)
    tasks = one_task(folder)
    command = [sys.executable, "-m", "tests.adapters.nemo_gym_session", str(tasks)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_a_right_answer_has_the_reward_of_a_training(verdicts):
    fused = verdicts["fused"]
    assert (fused["status"], fused["correct"]) == ("ok", 1)
    assert fused["reward"] > 1
    assert fused["speedup"] > 1


def test_a_wrong_answer_earns_nothing(verdicts):
    wrong = verdicts["wrong"]
    assert (wrong["status"], wrong["correct"], wrong["reward"], wrong["speedup"]) == ("incorrect", 0, 0, 0)


def test_the_request_comes_back_with_the_verdict(verdicts):
    returned = verdicts["fused"]["responses_create_params"]["input"]
    assert [message["content"] for message in returned] == [message["content"] for message in verdicts["input"]]
