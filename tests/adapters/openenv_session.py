# SPDX-License-Identifier: Apache-2.0
"""An episode by OpenEnv's own client, where it is installed: `python -m tests.adapters.openenv_session ADDRESS`."""

import json
import sys
from pathlib import Path

from openenv.core import GenericEnvClient

EXAMPLES = Path(__file__).parents[2] / "examples"


def main(address: str) -> None:
    """Print what was observed, as JSON."""
    found = []
    with GenericEnvClient(base_url=address).sync() as environment:
        found.append(environment.reset())
        for name in ("wrong", "fused"):
            found.append(environment.step({"answer": f"```python\n{(EXAMPLES / f'{name}.py').read_text()}```"}))
    print(json.dumps([{"reward": each.reward, "done": each.done, **each.observation} for each in found]))


if __name__ == "__main__":
    main(sys.argv[1])
