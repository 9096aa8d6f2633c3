# SPDX-License-Identifier: Apache-2.0
"""SkyRL's registry makes the environment, and an episode has the verdicts of the gym."""

import json
import subprocess
import sys

import pytest

from tests.adapters.fetching import fetched, one_task

SKYRL = "skyrl-gym==0.4.0"
pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    """What an episode of two turns said, a wrong answer and a right one."""
    folder = tmp_path_factory.mktemp("skyrl")
    environment = fetched(folder, "--no-deps", SKYRL, "func-timeout")
    tasks = one_task(folder)
    command = [sys.executable, "-m", "tests.adapters.skyrl_episode", str(tasks)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_a_wrong_answer_earns_nothing_and_is_told_why(steps):
    wrong = steps["wrong"]
    assert (wrong["reward"], wrong["done"], wrong["metadata"]) == (0, False, {"status": "incorrect"})
    assert wrong["observations"][0]["role"] == "user"
    assert "incorrect" in wrong["observations"][0]["content"]


def test_a_right_answer_ends_with_the_reward_of_a_training(steps):
    fused = steps["fused"]
    assert (fused["done"], fused["observations"], fused["metadata"]) == (True, [], {"status": "ok"})
    assert fused["reward"] > 1


def test_metrics_are_those_of_the_last_answer(steps):
    assert steps["metrics"]["correct"] == 1
    assert steps["metrics"]["speedup"] > 1
