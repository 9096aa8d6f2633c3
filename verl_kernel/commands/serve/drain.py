# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel serve-drain`: take a node, or one judge, out of a running cluster's pool before maintenance.

The exit code is 0 if judges were drained (or taken back), 2 with one sentence if the name does not exist.
"""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from verl_kernel.commands.serve.running_pools import ADDRESS, NAME, ask, running_pools
from verl_kernel.env import PoolStats
from verl_kernel.errors import ConfigError

_PAUSE_S = 1.0
"""Seconds between two questions whether the judges still work."""


def command(
    *,
    node: Annotated[
        str | None, typer.Argument(help="Node whose judges to drain: host name, address, or beginning of its id.")
    ] = None,
    judge: Annotated[int | None, typer.Option(help="One judge, by its number in serve-status.")] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Let the judges serve again.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Return when the judges have finished.")] = False,
    address: Annotated[str, typer.Option(help=ADDRESS)] = "auto",
    name: Annotated[str, typer.Option(help=NAME)] = "kernelgym",
) -> None:
    """Stop giving work to judges; they finish what they have begun."""
    if (node is None) == (judge is None):
        raise ConfigError("which judges are meant is unclear: name a node, or one judge with --judge, and not both")
    with running_pools(address, name) as routers:
        for router in routers:
            numbers = ask(router, "drain", node, judge, not undo)
            if wait and not undo:
                _await_idle(router, numbers)
            typer.echo(_sentence(name, numbers, ask(router, "stats"), undo))


def _await_idle(router: Any, numbers: list[int]) -> None:
    while _at_work(ask(router, "stats"), numbers):
        time.sleep(_PAUSE_S)


def _at_work(stats: PoolStats, numbers: list[int]) -> list[int]:
    return [number for number in numbers if stats.judges[number].state == "draining"]


def _sentence(name: str, numbers: list[int], stats: PoolStats, undo: bool) -> str:
    subject = f"pool {name}: {'judges' if numbers else 'no judge'} {', '.join(map(str, numbers))}".rstrip()
    if undo:
        return f"{subject} may serve again"
    return f"{subject} get nothing new; {len(_at_work(stats, numbers))} still at work"
