# SPDX-License-Identifier: Apache-2.0
"""Ray's test cluster: several raylets on this machine, and their loss, with all their processes as where one fails."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import psutil

from tests.env.programs import HONEST, candidate
from verl_kernel.env import EvalStatus

SOURCES = [HONEST, candidate("return self.right(x, y) + 1")]
EXPECTED = [EvalStatus.OK, EvalStatus.INCORRECT]


@contextlib.contextmanager
def ray_cluster(*nodes: dict[str, Any]) -> Iterator[tuple[Any, list[Any]]]:
    """A cluster with these nodes, of which this process is a driver on a head with one processor."""
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        ray.init(address=cluster.address, log_to_driver=False)  # while the head, which stays, is the only node to join
        added = [cluster.add_node(**node) for node in nodes]
        cluster.wait_for_nodes()
        yield cluster, added
    finally:
        ray.shutdown()
        cluster.shutdown()


def command(*words: str) -> subprocess.CompletedProcess[str]:
    """A command of ours in a process of its own."""
    start = [sys.executable, "-c", "from verl_kernel.cli import app; app()"]
    return subprocess.run([*start, *words], capture_output=True, text=True, timeout=300)


def lose(cluster: Any, node: Any) -> None:
    """End a node's raylet and whatever it started: by themselves its workers go on answering for seconds."""
    from ray._private.ray_constants import PROCESS_TYPE_RAYLET

    raylets = node.all_processes[PROCESS_TYPE_RAYLET]
    workers = [child for each in raylets for child in psutil.Process(each.process.pid).children(recursive=True)]
    cluster.remove_node(node, allow_graceful=False)
    for worker in workers:
        with contextlib.suppress(psutil.NoSuchProcess):
            worker.kill()
