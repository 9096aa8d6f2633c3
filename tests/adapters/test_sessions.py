# SPDX-License-Identifier: Apache-2.0
"""NeMo Gym, SkyRL, TRL and OpenEnv, each in a process of its own, get the verdicts and rewards of the gym."""

import functools
import subprocess
import sys

import pytest

from tests.adapters.packages import one_task, said_by, variables
from tests.env.waiting import until
from tests.service.serving import client, free_port

pytestmark = [pytest.mark.exhaustive, pytest.mark.processes, pytest.mark.slow, pytest.mark.timeout(900)]
on_python_3_11 = pytest.mark.skipif(sys.version_info < (3, 11), reason="NeMo Gym needs Python 3.11")


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    @functools.cache
    def session(name):
        folder = tmp_path_factory.mktemp(name)
        return said_by(variables(name), folder, f"tests.adapters.{name}_session", one_task(folder))

    return session


@on_python_3_11
def test_nemo_gym_rewards_a_right_answer_as_a_training_does(said):
    fused = said("nemo_gym")["fused"]
    assert (fused["status"], fused["correct"]) == ("ok", 1)
    assert fused["reward"] > 1
    assert fused["speedup"] > 1


@on_python_3_11
def test_nemo_gym_rewards_no_wrong_answer(said):
    wrong = said("nemo_gym")["wrong"]
    assert (wrong["status"], wrong["correct"], wrong["reward"], wrong["speedup"]) == ("incorrect", 0, 0, 0)


@on_python_3_11
def test_nemo_gym_has_its_request_back_with_the_verdict(said):
    verdicts = said("nemo_gym")
    returned = verdicts["fused"]["responses_create_params"]["input"]
    assert [message["content"] for message in returned] == [message["content"] for message in verdicts["input"]]


def test_skyrl_tells_a_model_why_its_answer_is_wrong(said):
    wrong = said("skyrl")["wrong"]
    assert (wrong["reward"], wrong["done"], wrong["metadata"]) == (0, False, {"status": "incorrect"})
    assert wrong["observations"][0]["role"] == "user"
    assert "incorrect" in wrong["observations"][0]["content"]


def test_skyrl_rewards_a_right_answer_as_a_training_does(said):
    fused = said("skyrl")["fused"]
    assert (fused["done"], fused["observations"], fused["metadata"]) == (True, [], {"status": "ok"})
    assert fused["reward"] > 1


def test_skyrls_metrics_are_those_of_the_last_answer(said):
    metrics = said("skyrl")["metrics"]
    assert metrics["correct"] == 1
    assert metrics["speedup"] > 1


def test_trl_rewards_right_answers_as_a_training_does(said):
    found = said("trl")
    assert found["rewards"] == [found["fused"], 0, 0, found["fused"]]
    assert found["fused"] > 1


def test_trl_logs_how_many_answers_are_right_and_how_fast(said):
    found = said("trl")
    assert found["metrics"] == {"kernelgym/correct": 0.5, "kernelgym/speedup": pytest.approx(found["speedup"] / 2)}


def test_trl_has_no_reward_for_what_could_not_be_judged(said):
    lost = said("trl")["lost"]
    assert lost[:2] == [None, None]
    assert lost[2] == 0  # without a program nothing is judged


def test_a_step_of_trl_has_the_rewards_of_the_gym(said):
    logged = said("trl")["logged"]
    assert logged["rewards/kernelgym/mean"] == 0
    assert (logged["kernelgym/correct"], logged["kernelgym/speedup"]) == (0, 0)
    assert logged["loss"] == logged["loss"]


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    tasks = one_task(tmp_path_factory.mktemp("openenv"))
    return {**variables("openenv"), "KERNEL_SUITE": str(tasks), "KERNEL_TURNS": "2", "KERNEL_DEVICE": "cpu"}


@pytest.fixture(scope="module")
def address(environment, tmp_path_factory):
    port, log = free_port(), tmp_path_factory.mktemp("log") / "log"
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
    begun, wrong, fused, late = said_by(environment, tmp_path, "tests.adapters.openenv_session", address)
    assert "class Model" in begun["message"]
    assert (wrong["status"], wrong["reward"], wrong["done"]) == ("incorrect", 0, False)
    assert (fused["status"], fused["done"]) == ("ok", True)
    assert fused["reward"] > 1
    assert fused["speedup"] > 1
    assert (late["reward"], late["done"], late["speedup"]) == (None, True, None)
    assert "reset" in late["message"]


def test_the_validator_of_openenv_passes(environment, address):
    words = [sys.executable, "-m", "openenv.cli", "validate", "--url", address]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "fail" not in done.stdout.lower().replace('"failed": 0', ""), done.stdout


def test_a_server_of_openenv_answers_after_its_validation(address):
    with client(address) as http:
        assert http.get("/health").status_code == 200
