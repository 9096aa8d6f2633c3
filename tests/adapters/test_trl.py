# SPDX-License-Identifier: Apache-2.0
"""TRL takes a step on rewards of the gym, on a CPU; TRL is fetched for it, since verl fails beside it."""

import json
import subprocess
import sys

import pytest

from tests.adapters.fetching import fetched

TRL = "trl>=1.14,<2"
pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trl")
    environment = fetched(folder, "--no-deps", TRL)
    command = [sys.executable, "-m", "tests.adapters.trl_step", str(folder)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_right_answers_have_the_reward_of_a_training(found):
    assert found["rewards"] == [found["fused"], 0, 0, found["fused"]]
    assert found["fused"] > 1


def test_what_the_gym_could_not_judge_has_no_reward(found):
    assert found["lost"][:2] == [None, None]
    assert found["lost"][2] == 0  # without a program nothing is judged


def test_a_step_of_grpo_has_the_rewards_of_the_gym(found):
    assert found["logged"]["rewards/kernelgym/mean"] == 0
    assert found["logged"]["loss"] == found["logged"]["loss"]
