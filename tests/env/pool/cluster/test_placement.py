# SPDX-License-Identifier: Apache-2.0
"""Judges beside verl's group of GPUs: nodes as `recipes/slurm/cluster.sh` declares them, smaller."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.env.pool.cluster.nodes import ray_cluster
from verl_kernel.env import GymOptions, KernelGym

SCRIPT = Path(__file__).parents[4] / "recipes" / "slurm" / "await_nodes.py"


def awaited(address, count, limit_s):
    command = [sys.executable, str(SCRIPT), address, str(count), str(limit_s)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.ray
def test_verls_group_leaves_the_judge_node_to_the_judges():
    from ray.util import placement_group_table
    from verl.single_controller.ray.base import RayResourcePool, ResourcePoolManager

    nodes = {"num_cpus": 2, "num_gpus": 2, "resources": {"judge": 2}}, {"num_cpus": 6, "num_gpus": 2}
    with ray_cluster(*nodes) as (cluster, (judge_node, trainer_node)):
        done = awaited(cluster.address, 3, 60)
        assert done.returncode == 0, done.stderr
        assert "3 of 4 nodes have joined" in awaited(cluster.address, 4, 0).stderr

        pool = RayResourcePool([2], max_colocate_count=ResourcePoolManager.max_colocate_count)
        groups = pool.get_placement_groups()
        used = {node for group in groups for node in placement_group_table(group)["bundles_to_node_id"].values()}
        assert used == {trainer_node.node_id}

        options = GymOptions(device="cpu", num_judges=2, gpus_per_judge=1.0, judge_resources={"judge": 1})
        with KernelGym.connect(options, name="beside") as gym:
            gym.ready()
            places = {(judge.node, judge.model) for judge in gym.stats().judges}
            assert places == {(judge_node.node_id, "h100, simulated")}
