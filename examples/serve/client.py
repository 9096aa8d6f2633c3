# SPDX-License-Identifier: Apache-2.0
"""Ask a service for a verdict, with nothing but Python: `python examples/serve/client.py http://127.0.0.1:8008`."""

import json
import sys
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

EXAMPLES = Path(__file__).parents[1]
JSON = {"Content-Type": "application/json"}  # with keys also "Authorization": "Bearer KEY"


def asked(address: str, reference: str, kernel: str) -> dict[str, Any]:
    """Send a kernel, and return its evaluation once that has ended."""
    body = {"evaluations": [{"task": {"reference": reference}, "source": kernel}], "wait_s": 30}
    request = Request(f"{address}/v1/evaluations", json.dumps(body).encode(), JSON)
    (evaluation,) = json.load(urlopen(request))["evaluations"]
    while evaluation["state"] == "waiting":
        evaluation = json.load(urlopen(f"{address}/v1/evaluations/{evaluation['id']}?wait_s=30"))
    return evaluation


if __name__ == "__main__":
    task, answer = ((EXAMPLES / name).read_text() for name in ("reference.py", "fused.py"))
    ended = asked(sys.argv[1], task, answer)
    if ended["state"] != "done":
        sys.exit(ended["problem"]["message"])
    verdict = ended["result"]
    print(verdict["status"], verdict["timing_source"], verdict["speedup"])
