# SPDX-License-Identifier: Apache-2.0
"""A node of a cluster that gets no more work before maintenance, by command and by handle."""

import subprocess
import sys

import pytest

from tests.env.pool.cluster.nodes import EXPECTED, SOURCES, ray_cluster
from tests.env.programs import REFERENCE
from verl_kernel.env import GymOptions, KernelGym, Task
from verl_kernel.errors import ConfigError

OPTIONS = GymOptions(
    device="cpu", static_check="off", correctness_trials=1, num_judges=2, judge_resources={"judge": 1}, quarantine_s=0.5
)
TASK = Task(REFERENCE, task_id="drains")


def drain(*arguments):
    command = [sys.executable, "-c", "from verl_kernel.cli import app; app()", "serve-drain", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout + done.stderr


def states(gym):
    return [judge.state for judge in gym.stats().judges]


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.ray
def test_a_drained_node_gets_nothing_new_until_it_is_taken_back():
    nodes = [{"num_cpus": 1, "resources": {"judge": 1}}] * 2
    with ray_cluster(*nodes) as (cluster, _added), KernelGym.connect(OPTIONS, name="drained", seed=1) as gym:
        gym.ready()
        where, node = ["--address", cluster.address, "--name", "drained"], gym.stats().judges[1].node
        assert drain(node[:10], "--wait", *where) == (0, "pool drained: judges 1 get nothing new; 0 still at work\n")
        assert states(gym) == ["free", "drained"]
        jobs = [(TASK, f"{source}# {number}\n", "") for number in range(2) for source in SOURCES]
        assert [result.status for result in gym.evaluate_many(jobs)] == EXPECTED * 2
        code, said = drain("nowhere", *where)
        assert (code, said.count("\n")) == (2, 1)
        assert said.startswith("Error: 'nowhere' names 0 nodes of the cluster")
        with pytest.raises(ConfigError, match="the pool has no judge 7"):
            gym.drain(judge=7)
        assert gym.undrain(node) == [1]
        assert states(gym) == ["free", "free"]
