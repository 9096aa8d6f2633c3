# SPDX-License-Identifier: Apache-2.0
"""Loss of a node of Ray's test cluster, with all its processes at once as where a machine fails."""

import contextlib
from typing import Any

import psutil
from ray._private.ray_constants import PROCESS_TYPE_RAYLET


def lose(cluster: Any, node: Any) -> None:
    """End a node's raylet and whatever it started: by themselves its workers go on answering for seconds."""
    raylets = node.all_processes[PROCESS_TYPE_RAYLET]
    workers = [child for each in raylets for child in psutil.Process(each.process.pid).children(recursive=True)]
    cluster.remove_node(node, allow_graceful=False)
    for worker in workers:
        with contextlib.suppress(psutil.NoSuchProcess):
            worker.kill()
