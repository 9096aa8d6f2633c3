# SPDX-License-Identifier: Apache-2.0
"""Wait until a Ray cluster has so many nodes: verl counts GPUs once, when it starts.

python recipes/slurm/await_nodes.py ADDRESS NODES [SECONDS]
"""

import sys
import time

import ray


def main(address: str, wanted: int, limit_s: float) -> None:
    """Return when the nodes are there.

    Raises:
        SystemExit: some do not come in time.
    """
    ray.init(address=address, logging_level="ERROR", log_to_driver=False)
    end = time.monotonic() + limit_s
    while (there := sum(node["Alive"] for node in ray.nodes())) < wanted:
        if time.monotonic() > end:
            raise SystemExit(f"{there} of {wanted} nodes have joined {address} after {limit_s:g} s: look at their logs")
        time.sleep(1.0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]) if len(sys.argv) > 3 else 600.0)
