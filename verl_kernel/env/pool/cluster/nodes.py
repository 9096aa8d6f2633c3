# SPDX-License-Identifier: Apache-2.0
"""Nodes and judges of a Ray cluster by the names that people have for them."""

from __future__ import annotations

import ray

from verl_kernel.errors import ConfigError

_SEE = "`verl-kernel serve-status` lists the judges and their nodes"


def find_nodes(name: str) -> list[str]:
    """Ids of the nodes of this address or host name, or of the one whose id begins so; lost ones count.

    Raises:
        ConfigError: there is none, or the beginning fits several ids.
    """
    nodes = ray.nodes()
    named = [node for node in nodes if name in (node["NodeManagerAddress"], node["NodeManagerHostname"])]
    begun = [node for node in nodes if name and node["NodeID"].startswith(name)]
    found = [str(node["NodeID"]) for node in named or begun]
    if not found or (not named and len(found) > 1):
        raise ConfigError(f"{name!r} names {len(found)} nodes of the cluster, by id, address or host name: {_SEE}")
    return found


def find_judge(number: int, count: int) -> list[int]:
    """The judge of this number.

    Raises:
        ConfigError: the pool has no such judge.
    """
    if not 0 <= number < count:
        raise ConfigError(f"the pool has no judge {number}: {_SEE}")
    return [number]
