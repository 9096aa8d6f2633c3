# SPDX-License-Identifier: Apache-2.0
"""Asks NeMo Gym's server for verdicts, as its agents do: `python -m tests.adapters.nemo_gym_session TASKS`."""

import json
import sys
from typing import Any
from unittest.mock import MagicMock

from fastapi.testclient import TestClient
from nemo_gym.server_utils import ServerClient

from tests.adapters.packages import FUSED, WRONG
from verl_kernel.adapters.nemo_gym import KernelServer, KernelServerConfig, task_lines
from verl_kernel.bench.suites import load_suite


def response(text: str) -> dict[str, Any]:
    content = [{"annotations": [], "text": text, "type": "output_text"}]
    message = {"id": "m", "content": content, "role": "assistant", "status": "completed", "type": "message"}
    facts = {"id": "r", "created_at": 0.0, "model": "one", "object": "response", "output": [message], "tools": []}
    return {**facts, "parallel_tool_calls": False, "tool_choice": "auto"}


config = KernelServerConfig(host="127.0.0.1", port=0, entrypoint="app.py", name="kernelgym", device="cpu")
server = KernelServer(config=config, server_client=MagicMock(spec=ServerClient))
(line,) = task_lines(load_suite(sys.argv[1]))
found: dict[str, Any] = {"input": line["responses_create_params"]["input"]}
with TestClient(server.setup_webserver()) as http:
    for name, text in (("fused", FUSED), ("wrong", WRONG)):
        answer = http.post("/verify", json={**line, "response": response(text)})
        assert answer.status_code == 200, answer.text
        found[name] = answer.json()
print(json.dumps(found))
