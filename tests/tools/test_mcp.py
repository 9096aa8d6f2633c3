# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel mcp`, asked by the protocol's own client."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.service.serving import free_port, is_listening, wait_for

pytest.importorskip("mcp")
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

pytestmark = [pytest.mark.processes, pytest.mark.slow]
EXAMPLES = Path(__file__).parents[2] / "examples"
FUSED, WRONG = ((EXAMPLES / f"{name}.py").read_text() for name in ("fused", "wrong"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tasks")
    (folder / "one.py").write_text((EXAMPLES / "reference.py").read_text())
    return folder


def words(folder, *more):
    return ["-m", "verl_kernel", "mcp", f"--suite={folder}", "--device=cpu", "--submissions=2", *more]


async def called(client, name, **given):
    result = await client.call_tool(name, given)
    return result.content[0].text


async def test_an_agent_works_on_a_task(folder):
    server = StdioServerParameters(command=sys.executable, args=words(folder), env={**os.environ})
    async with Client(stdio_client(server)) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == {
            *("list_tasks", "get_task", "check", "run", "profile", "submit")
        }
        assert await called(client, "list_tasks") == "one"
        assert "class Model" in await called(client, "get_task", task="one")
        assert "compiles and runs" in await called(client, "check", task="one", source=WRONG)
        assert "Verdict: incorrect" in await called(client, "run", task="one", source=WRONG)
        assert "predicted" in await called(client, "profile", task="one", source=FUSED)
        assert "Verdict: ok" in await called(client, "submit", task="one", source=FUSED)
        assert "0 of 2" in await called(client, "submit", task="one", source=WRONG)
        assert "are spent" in await called(client, "submit", task="one", source=FUSED)
        assert "list_tasks names them all" in await called(client, "check", task="two", source=FUSED)


@pytest.mark.exhaustive
async def test_the_same_over_http(folder, tmp_path):
    port, log = free_port(), tmp_path / "log"
    with log.open("w") as out:
        process = subprocess.Popen([sys.executable, *words(folder, "--http", f"--port={port}")], stderr=out)
    try:
        wait_for(lambda: "tools at" in log.read_text() or process.poll() is not None, 300)
        wait_for(lambda: is_listening(port), 300)
        async with Client(f"http://127.0.0.1:{port}/mcp") as client:
            assert await called(client, "list_tasks") == "one"
            assert "Verdict: ok" in await called(client, "submit", task="one", source=FUSED)
    finally:
        process.terminate()
        process.wait(timeout=300)
