# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel serve`: the gym over HTTP; beside it, commands for the pool of a running Ray cluster.

The exit code is 0 after SIGTERM or Ctrl-C, 2 with one sentence if the service cannot start.
"""

from __future__ import annotations

from typing import Annotated

import typer

from verl_kernel.commands import gym_options
from verl_kernel.env import GymOptions
from verl_kernel.service.options import ServiceOptions

_USUAL = ServiceOptions.in_recipes()


@gym_options.takes_gym(
    *("device", "baseline", "static_check", "tolerance", "float32", "trials", "gpu_profile", "compile_for"),
    *("memory_checks", "references", "num_judges", "true_size", "timeout"),
    # A recipe trusts its own tasks and keeps what it learns of them; a service has the tasks of others.
    drops=("address", "address_key", "references", "reference_cache", "verdict_cache"),
    references="jailed",
)
def command(
    *,
    host: Annotated[str, typer.Option(help="Address to listen on; others than this machine's own need --keys.")] = (
        _USUAL["host"]
    ),
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = _USUAL["port"],
    keys: Annotated[str | None, typer.Option(help="File of API keys: a namespace and a key in each line.")] = None,
    state: Annotated[str, typer.Option(help="Folder for accepted work and results.")] = _USUAL["state"],
    most_waiting: Annotated[int, typer.Option(help="Unfinished evaluations of a namespace before it is refused.")] = (
        _USUAL["most_waiting"]
    ),
    request_mb: Annotated[float, typer.Option(help="Largest request in megabytes.")] = _USUAL["request_mb"],
    request_s: Annotated[float, typer.Option(help="Seconds in which a request must arrive.")] = _USUAL["request_s"],
    keep_hours: Annotated[float, typer.Option(help="Hours for which results are kept.")] = _USUAL["keep_hours"],
    grace_s: Annotated[float, typer.Option(help="Seconds for unfinished evaluations at the end.")] = _USUAL["grace_s"],
    ray_address: Annotated[str | None, typer.Option(help="Ray cluster whose pool judges, or auto.")] = None,
    seed: Annotated[int | None, typer.Option(help="Draw the same inputs in every run.")] = None,
    gym: GymOptions,
) -> None:
    """Serve the gym over HTTP."""
    arguments = locals()
    service = ServiceOptions(**{key: arguments[key] for key in _USUAL})
    from verl_kernel.service.server import serve  # torch and a web framework, which a usage error need not wait for

    serve(service, gym, seed, ray_address)
