# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel serve-status`: the queue, judges and pace of a running cluster's pool.

Exit code 0 where there is a pool, 2 with one sentence where there is no cluster or no pool of that name.
"""

from __future__ import annotations

import logging
import socket
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from verl_kernel.env.pool_stats import RECENT_S, PoolStats
from verl_kernel.errors import EnvironmentNotReady

_ANSWER_S, _KNOCK_S = 20.0, 5.0


def command(
    address: Annotated[str, typer.Option(help="Address of the Ray cluster; auto finds the one of this machine.")] = (
        "auto"
    ),
    name: Annotated[str, typer.Option(help="Name of the pool.")] = "kernelgym",
    json: Annotated[bool, typer.Option("--json", help="One JSON object instead of tables.")] = False,
) -> None:
    """Show the queue, judges and pace of a cluster's pool."""
    try:
        pools = read_stats(address, name)
    except EnvironmentNotReady as exc:
        typer.echo(f"Error: {exc}", err=True)
        raise typer.Exit(2) from None
    for stats in pools:
        if json:
            typer.echo(stats.model_dump_json())
        else:
            Console().print(_counts(name, stats), _judges(stats))


def read_stats(address: str, name: str) -> list[PoolStats]:
    """Ask the pools called `name`, one for each job that has one.

    Raises:
        EnvironmentNotReady: no cluster, no such pool, or no answer; the sentence says which.
    """
    import ray

    try:
        _knock(address)
        ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False)
    except (ConnectionError, ValueError, RuntimeError, OSError) as exc:
        raise EnvironmentNotReady(
            f"no Ray cluster answers at {address}: start a run first, or name its cluster with --address "
            f"({_first_line(exc)})"
        ) from exc
    try:
        named = [actor for actor in ray.util.list_named_actors(all_namespaces=True) if actor["name"] == name]
        if not named:
            raise EnvironmentNotReady(
                f"the cluster has no pool called {name}: a run makes one when it starts; --name takes another name"
            )
        return [_ask(ray, actor) for actor in named]
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    """Raise OSError where nobody listens: Ray itself would try for two minutes and then end this process."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host, int(port)), timeout=_KNOCK_S).close()


def _ask(ray: Any, actor: dict[str, str]) -> PoolStats:
    from verl_kernel.env.router import CONTROL

    try:
        router = ray.get_actor(actor["name"], namespace=actor["namespace"])
        answer = router.stats.options(concurrency_group=CONTROL).remote()
        stats: PoolStats = ray.get(answer, timeout=_ANSWER_S)
    except (ray.exceptions.RayError, AttributeError, ValueError) as exc:
        raise EnvironmentNotReady(
            f"the actor {actor['name']} does not answer as a pool does ({_first_line(exc)}): look at the run's log"
        ) from exc
    return stats


def _first_line(exc: Exception) -> str:
    return str(exc).strip().partition("\n")[0][:200]


def _counts(name: str, stats: PoolStats) -> Table:
    table = Table("figure", "value", title=f"pool {name}, up for {stats.uptime_s:.0f} s")
    for figure, value in (
        ("waiting for a judge", str(stats.queue)),
        ("waiting for a place in the queue", str(stats.held_back)),
        ("judges", f"{len(stats.judges)}: {stats.busy} busy, {stats.alive} alive, {stats.quarantined} quarantined"),
        (f"results per second, last {RECENT_S:.0f} s", f"{stats.recent_per_second:.2f}"),
        ("results per second, since the start", f"{stats.per_second:.2f}"),
        ("results", ", ".join(f"{count} {status}" for status, count in sorted(stats.statuses.items())) or "none"),
        ("answered from memory", str(stats.remembered)),
        ("retries", str(stats.retries)),
        ("infra errors", str(stats.infra_errors)),
        ("quarantines", str(stats.quarantines)),
    ):
        table.add_row(figure, value)
    return table


def _judges(stats: PoolStats) -> Table:
    table = Table("judge", "state", "node", "process")
    for judge in stats.judges:
        table.add_row(str(judge.number), judge.state, judge.node[:12], "" if judge.pid is None else str(judge.pid))
    return table
