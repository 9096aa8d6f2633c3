# SPDX-License-Identifier: Apache-2.0
"""The tools by the Model Context Protocol, for coding agents."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import ParamSpec

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from verl_kernel import __version__
from verl_kernel.errors import VerlKernelError
from verl_kernel.tools.toolbox import Toolbox

_INSTRUCTIONS = (
    "Write Triton kernels that replace PyTorch programs. list_tasks and get_task say what is asked; check, run and "
    "profile try a program as often as you like; submit has it judged on inputs that you do not know, a limited number "
    "of times. A program defines the class that get_task names."
)


def make_server(tools: Toolbox) -> MCPServer:
    """Return a server of one session's tools; all its clients share the budget of submissions."""
    server: MCPServer = MCPServer("kernelgym", instructions=_INSTRUCTIONS, version=__version__, log_level="WARNING")
    for tool in (tools.list_tasks, tools.get_task, tools.check, tools.run, tools.profile, tools.submit):
        server.add_tool(_with_readable_errors(tool), structured_output=False)
    return server


Parameters = ParamSpec("Parameters")


def _with_readable_errors(tool: Callable[Parameters, Awaitable[str]]) -> Callable[Parameters, Awaitable[str]]:
    """Return a tool whose refusals the agent reads; of any other exception it learns nothing."""

    @functools.wraps(tool)
    async def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> str:
        try:
            return await tool(*args, **kwargs)
        except VerlKernelError as exc:
            raise ToolError(str(exc)) from exc

    return run
