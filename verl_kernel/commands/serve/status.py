# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel serve-status`: show the queue, judges and pace of a running cluster's pool.

The exit code is 0 if there is a pool, 2 with one sentence if there is no cluster or no pool of that name.
"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from verl_kernel.commands.serve.running_pools import ADDRESS, NAME, ask, running_pools
from verl_kernel.env import PoolStats
from verl_kernel.reporting.screen import screen


def command(
    address: Annotated[str, typer.Option(help=ADDRESS)] = "auto",
    name: Annotated[str, typer.Option(help=NAME)] = "kernelgym",
    json: Annotated[bool, typer.Option("--json", help="One JSON object instead of tables.")] = False,
) -> None:
    """Show the queue, judges and pace of a cluster's pool."""
    for stats in read_stats(address, name):
        if json:
            typer.echo(stats.model_dump_json())
        else:
            screen().print(_counts(name, stats), _judges(stats))


def read_stats(address: str, name: str) -> list[PoolStats]:
    """Ask the pools called `name`, one for each job that has such a pool.

    Raises:
        EnvironmentNotReady: no cluster, no such pool, or no answer; the sentence says which.
    """
    with running_pools(address, name) as routers:
        return [ask(router, "stats") for router in routers]


def _counts(name: str, stats: PoolStats) -> Table:
    table = Table("figure", "value", title=f"pool {name}, up for {stats.uptime_s:.0f} s")
    for figure, value in (
        ("waiting for a judge", str(stats.queue)),
        ("waiting for a place in the queue", str(stats.held_back)),
        ("judges", _summary(stats)),
        (f"results per second, last {stats.RECENT_S:.0f} s", f"{stats.recent_per_second:.2f}"),
        ("results per second, since the start", f"{stats.per_second:.2f}"),
        ("results", ", ".join(f"{count} {status}" for status, count in sorted(stats.statuses.items())) or "none"),
        ("answered from memory", str(stats.remembered)),
        ("retries", str(stats.retries)),
        ("infra errors", str(stats.infra_errors)),
        ("quarantines", str(stats.quarantines)),
        *_prefilter(stats),
    ):
        table.add_row(figure, value)
    return table


def _prefilter(stats: PoolStats) -> list[tuple[str, str]]:
    if (prefilter := stats.prefilter) is None:
        return []
    counts = f"{prefilter.refused} refused, {prefilter.passed} passed, {prefilter.undecided} undecided"
    return [("prefilter", counts), ("GPU seconds saved by it, estimated", f"{prefilter.gpu_seconds_saved:.0f}")]


def _summary(stats: PoolStats) -> str:
    drained = f", {stats.drained} drained" if stats.drained else ""
    return f"{len(stats.judges)}: {stats.busy} busy, {stats.alive} alive, {stats.quarantined} quarantined{drained}"


def _judges(stats: PoolStats) -> Table:
    table = Table("judge", "state", "GPU", "node", "process")
    for judge in stats.judges:
        pid = "" if judge.pid is None else str(judge.pid)
        table.add_row(str(judge.number), judge.state, judge.model, judge.node[:12], pid)
    return table
