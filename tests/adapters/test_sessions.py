# SPDX-License-Identifier: Apache-2.0
"""NeMo Gym, SkyRL and TRL, each in a process of its own, get the verdicts and rewards of the gym."""

import functools
import sys

import pytest

from tests.adapters.packages import one_task, said_by, variables

pytestmark = [pytest.mark.exhaustive, pytest.mark.processes, pytest.mark.slow, pytest.mark.timeout(900)]
on_python_3_11 = pytest.mark.skipif(sys.version_info < (3, 11), reason="NeMo Gym needs Python 3.11")


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What the session with a package has said."""

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


def test_trl_has_no_reward_for_what_could_not_be_judged(said):
    lost = said("trl")["lost"]
    assert lost[:2] == [None, None]
    assert lost[2] == 0  # without a program nothing is judged


def test_a_step_of_trl_has_the_rewards_of_the_gym(said):
    logged = said("trl")["logged"]
    assert logged["rewards/kernelgym/mean"] == 0
    assert logged["loss"] == logged["loss"]
