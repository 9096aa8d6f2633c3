# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel mcp`: tools for coding agents, over standard input and output or over HTTP on this machine.

The exit code is 0 when the client has gone, 2 with one sentence if the server cannot start.
"""

from __future__ import annotations

import logging
from contextlib import redirect_stdout
from typing import Annotated

import typer

from verl_kernel.commands import gym_options
from verl_kernel.commands.eval import own_stdout
from verl_kernel.env import GymOptions
from verl_kernel.errors import ConfigError


@gym_options.takes_gym(
    *("device", "address", "address_key", "baseline", "static_check", "tolerance", "float32", "trials", "gpu_profile"),
    *("compile_for", "memory_checks", "true_size", "timeout"),
)
def command(
    *,
    suite: Annotated[str, typer.Option(help="Tasks: cpu, kernelbench:PATH, FILE.parquet, or a FOLDER of references.")],
    levels: Annotated[str, typer.Option(help="KernelBench levels, as in 1,2; all by default.")] = "",
    submissions: Annotated[int, typer.Option(min=1, help="How often this server's clients may submit in all.")] = 20,
    http: Annotated[
        bool, typer.Option("--http", help="Serve over HTTP on 127.0.0.1 in place of standard input.")
    ] = False,
    port: Annotated[int, typer.Option(help="Port of --http.")] = 8009,
    gym: GymOptions,
) -> None:
    """Give coding agents tools: tasks, trials on public inputs, profiles, submissions."""
    try:
        import mcp  # noqa: F401  before anything expensive starts
    except ModuleNotFoundError as exc:
        raise ConfigError("verl-kernel mcp needs the package mcp: pip install 'verl-kernel[mcp]'") from exc
    from verl_kernel.bench.suites import load_suite

    chosen = load_suite(suite, gym_options.read_levels(levels))
    # torch, which a usage error need not wait for
    from verl_kernel.client import open_gym
    from verl_kernel.env import LocalPool
    from verl_kernel.rollout.tool_replies import PUBLIC_SEED, public_options
    from verl_kernel.tools.mcp_server import make_server
    from verl_kernel.tools.toolbox import Stated, Toolbox

    tasks = [Stated(item.task, "\n\n".join(message["content"] for message in item.messages)) for item in chosen.tasks]
    logging.getLogger("verl_kernel").addHandler(logging.NullHandler())
    with (
        own_stdout() as out,  # the protocol's alone
        redirect_stdout(out),
        LocalPool(public_options(gym), PUBLIC_SEED) as public,
        open_gym(gym, None) as judges,
    ):
        server = make_server(Toolbox(tasks, public, judges, submissions))
        if http:
            typer.echo(f"tools at http://127.0.0.1:{port}/mcp", err=True)
            server.run("streamable-http", host="127.0.0.1", port=port)
        else:
            server.run("stdio")
