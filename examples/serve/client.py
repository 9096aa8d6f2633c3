# SPDX-License-Identifier: Apache-2.0
"""Ask a service for a verdict, with Python alone: `python examples/serve/client.py http://127.0.0.1:8008 [KEY]`."""

import json
import sys
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

EXAMPLES = Path(__file__).parents[1]


def asked(address: str, reference: str, kernel: str, key: str = "") -> dict[str, Any]:
    """Send a kernel, and return its evaluation once that has ended."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    body = {"evaluations": [{"task": {"reference": reference}, "source": kernel}], "wait_s": 30}
    (evaluation,) = _answer(Request(f"{address}/v1/evaluations", json.dumps(body).encode(), headers))["evaluations"]
    while evaluation["state"] == "waiting":
        evaluation = _answer(Request(f"{address}/v1/evaluations/{evaluation['id']}?wait_s=30", headers=headers))
    return evaluation


def _answer(request: Request) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = json.load(urlopen(request))
    except HTTPError as exc:
        sys.exit(json.load(exc)["detail"])
    return answer


if __name__ == "__main__":
    task, answer = ((EXAMPLES / name).read_text() for name in ("reference.py", "fused.py"))
    ended = asked(sys.argv[1], task, answer, *sys.argv[2:])
    if ended["state"] != "done":
        sys.exit(ended["problem"]["message"])
    verdict = ended["result"]
    print(verdict["status"], verdict["timing_source"], verdict["speedup"])
