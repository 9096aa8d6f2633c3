# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel serve`: the gym over HTTP; beside it, commands for the pool of a running Ray cluster.

The exit code is 0 after SIGTERM or Ctrl-C, 2 with one sentence if the service cannot start.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from verl_kernel.commands import gym_options
from verl_kernel.data.files import read_yaml
from verl_kernel.env import GymOptions
from verl_kernel.errors import ConfigError
from verl_kernel.option_group import as_mapping, option_names
from verl_kernel.service.options import ServiceOptions

_USUAL = ServiceOptions.in_recipes()


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
    options: Annotated[
        Path | None, typer.Option(help="YAML file of a recipe's kernelgym, for the options below.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Draw the same inputs in every run.")] = None,
    device: gym_options.Device = gym_options.USUAL["device"],
    baseline: gym_options.Baseline = gym_options.USUAL["reference_mode"],
    static_check: gym_options.StaticCheck = gym_options.USUAL["static_check"],
    tolerance: gym_options.Tolerance = gym_options.USUAL["tolerance"],
    float32: gym_options.Float32 = gym_options.USUAL["float32"],
    trials: gym_options.Trials = gym_options.USUAL["correctness_trials"],
    gpu_profile: gym_options.GpuProfile = gym_options.USUAL["gpu_profile"],
    compile_for: gym_options.CompileFor = gym_options.USUAL["compile_for"],
    memory_checks: gym_options.MemoryChecks = gym_options.USUAL["memory_checks"],
    references: gym_options.References = "jailed",
    num_judges: gym_options.NumJudges = gym_options.USUAL["num_judges"],
    true_size: gym_options.TrueSize = gym_options.USUAL["true_size"],
    timeout: gym_options.Timeout = None,
) -> None:
    """Serve the gym over HTTP."""
    arguments = locals()
    service = ServiceOptions(**{key: arguments[key] for key in _USUAL})
    gym = gym_options.chosen(arguments) if options is None else _for_service(read_gym(options), references)
    from verl_kernel.service.server import serve  # torch and a web framework, which a usage error need not wait for

    serve(service, gym, seed, ray_address)


def _for_service(gym: GymOptions, references: str) -> GymOptions:
    """Return a recipe's gym for the tasks of others: the recipe trusts its own, and keeps what it learns of them."""
    values: dict[str, Any] = {"references": references}
    if references == "jailed":
        values |= {"reference_cache": None, "verdict_cache": None}
    return replace(gym, **values)


def read_gym(path: Path) -> GymOptions:
    """Return the gym of a file that holds a recipe's `kernelgym`; its keys of rollouts and rewards have no effect.

    Raises:
        ConfigError: the file cannot be read, or a value is out of its range.
    """
    read = read_yaml(path, "--options names a file that holds a recipe's kernelgym, or its keys")
    node = as_mapping("kernelgym", read.get("kernelgym", read), option_names(GymOptions))
    # What only a training knows stands in other keys, such as `cold_start: ${quickstart_dir}/corpus.parquet`.
    values = {key: node[key] for key in option_names(GymOptions) if key in node}
    if not values:
        raise ConfigError(f"--options is {path}, which holds no key of the gym: write a recipe's kernelgym into it")
    if referring := next((key for key, value in values.items() if "${" in str(value)), None):
        words = f"kernelgym.{referring} in {path} is {values[referring]}, which refers to another key"
        raise ConfigError(f"{words}: write its value")
    return replace(GymOptions.from_node(values), address=None, address_key=None)
