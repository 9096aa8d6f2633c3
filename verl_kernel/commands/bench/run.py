# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel bench`: a model on a suite of tasks.

The exit code is 0 for any verdicts, 1 if a suite's references fail their own check, 2 for a usage error, 3 if the
model's endpoint, the disk or the gym failed. The same command continues a run that ended for any reason.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from verl_kernel.commands import gym_options
from verl_kernel.commands.sentences import INFRA_ERROR, INTERRUPTED
from verl_kernel.data.temperatures import read_temperatures
from verl_kernel.env import GymOptions
from verl_kernel.errors import ConfigError, DataError

if TYPE_CHECKING:
    from verl_kernel.bench.models.choice import ModelChoice
    from verl_kernel.bench.session import Request
    from verl_kernel.bench.suites import Suite
    from verl_kernel.reward.profiling import ProfilingReward

CHECK_FAILED = 1
"""Exit code if a reference fails its own check."""


@gym_options.takes_gym(
    *("device", "address", "address_key", "baseline", "num_judges", "static_check", "tolerance", "float32", "trials"),
    *("gpu_profile", "compile_for", "memory_checks", "true_size", "other_sizes", "memory_mb", "timeout"),
)
def command(
    *,
    suite: Annotated[
        str, typer.Option(help="cpu, kernelbench:PATH, a parquet file of tasks, or a folder of references.")
    ],
    base_url: Annotated[str | None, typer.Option(help="An OpenAI-compatible endpoint, as http://host:8000/v1.")] = None,
    model: Annotated[str | None, typer.Option(help="The model's name at the endpoint.")] = None,
    key_variable: Annotated[
        str | None, typer.Option(help="Environment variable with the key; default OPENAI_API_KEY.")
    ] = None,
    vllm: Annotated[Path | None, typer.Option(help="Folder of a model to serve with vLLM for the run.")] = None,
    vllm_args: Annotated[str, typer.Option(help="Further arguments of `vllm serve`, as one text.")] = "",
    kernels: Annotated[Path | None, typer.Option(help="Folder of saved kernels, KernelBench's runs included.")] = None,
    only_present: Annotated[
        bool, typer.Option("--only-present", help="Leave out tasks without a saved kernel.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Folder of the run; default outputs/bench/<suite>-<model>.")] = None,
    levels: Annotated[str, typer.Option(help="Levels of KernelBench, as 1,2.")] = "",
    tasks: Annotated[int | None, typer.Option(min=1, help="Take only this many tasks, the first ones.")] = None,
    samples: Annotated[
        int | None,
        typer.Option("-n", "--samples", help="Trajectories of each task; default 1, of kernels all."),
    ] = None,
    turns: Annotated[int, typer.Option(help="Turns of each trajectory.")] = 1,
    context: Annotated[
        str, typer.Option(help="Earlier turns in a prompt: concat, last, best_window, top_w.")
    ] = "concat",
    window: Annotated[int, typer.Option(help="How many earlier turns; concat shows all.")] = 4,
    total_tokens: Annotated[int | None, typer.Option(help="Tokens after which a trajectory begins no turn.")] = None,
    total_seconds: Annotated[float | None, typer.Option(help="Seconds after which it begins no turn.")] = None,
    temperature: Annotated[
        str, typer.Option(help="0 is greedy; several, as 1,0.6,0.3,0, are a run each, and one table.")
    ] = "1",
    top_p: Annotated[float, typer.Option(min=0.0, max=1.0)] = 1.0,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Longest answer; default is the suite's.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of answers and of judges' inputs.")] = 0,
    feedback: Annotated[str, typer.Option(help="Message after a turn: short, full, profile, none.")] = "short",
    feedback_chars: Annotated[int | None, typer.Option(help="Its limit in characters; default is the suite's.")] = None,
    requests: Annotated[int, typer.Option(help="Requests in flight at a time.")] = 16,
    retries: Annotated[int, typer.Option(min=0, help="Further attempts at a request, with growing pauses.")] = 6,
    request_timeout: Annotated[float, typer.Option(min=1.0, help="Seconds for one answer.")] = 600.0,
    name_targets: Annotated[
        bool, typer.Option("--name-targets", help="Name in our own prompts the GPUs of --compile-for.")
    ] = False,
    reward: Annotated[
        list[str] | None, typer.Option(help="An option of kernelgym.reward, as variant=weighted; may be repeated.")
    ] = None,
    cold_start: Annotated[
        Path | None, typer.Option(help="Parquet of the cold start's conversations: show how much is not in it.")
    ] = None,
    self_check: Annotated[
        bool, typer.Option("--self-check", help="Only judge the references against themselves.")
    ] = False,
    everything: Annotated[bool, typer.Option("--all", help="Print all figures, by turn and group too.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Scores as one JSON object instead of tables.")] = False,
    gym: GymOptions,
) -> None:
    """Measure a model on a suite; the same command continues an unfinished run."""
    args = dict(locals())
    logging.getLogger("verl_kernel").addHandler(logging.NullHandler())  # the folder or the error holds the messages
    # Idle OpenMP threads that spin would take the core a judge needs; read when torch is first imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        code = _self_check(args) if self_check else _bench(args)
    except KeyboardInterrupt:
        typer.echo("Interrupted: what was finished stays, and the same command goes on.", err=True)
        raise typer.Exit(INTERRUPTED) from None
    raise typer.Exit(code)


def _bench(args: dict[str, Any]) -> int:
    from verl_kernel.bench.report import report_run, report_temperatures
    from verl_kernel.bench.session import run_bench

    cold_start = _cold_start(args["cold_start"])
    temperatures = read_temperatures(args["temperature"], "--temperature")
    request = _request(args, temperatures[0])
    several = temperatures if len(temperatures) > 1 else ()
    folders = run_bench(request, lambda text: typer.echo(text, err=True), several)
    if several:
        lost = report_temperatures(dict(zip(several, folders, strict=True)), sys.stdout, args["json"], cold_start)
    else:
        lost = report_run(request.out, sys.stdout, args["json"], args["everything"], cold_start)
    if lost:
        typer.echo(f"{lost} answers could not be judged; the same command tries them again.", err=True)
    return INFRA_ERROR if lost else 0


def _cold_start(path: Path | None) -> str | None:
    """Return the name of the cold start's file; refuse a wrong one before anything is asked."""
    if path is None:
        return None
    from verl_kernel.reward.novelty import check_cold_start

    try:
        check_cold_start(str(path))
    except DataError as exc:
        raise DataError(f"--cold-start: {exc}") from exc
    return str(path)


def _self_check(args: dict[str, Any]) -> int:
    from verl_kernel.bench.self_check import summary
    from verl_kernel.bench.session import run_self_check
    from verl_kernel.bench.store import make_folder

    if any(args[key] is not None for key in ("base_url", "vllm", "kernels")):
        raise ConfigError("--self-check asks no model: leave --base-url, --vllm and --kernels out")
    gym, levels = args["gym"], gym_options.read_levels(args["levels"])
    if args["out"] is not None:
        make_folder(args["out"])
    suite = _suite(args, levels, gym)
    out = args["out"] or _folder(suite.name, "self_check")
    check = run_self_check(suite, gym, args["seed"], out)
    for line in summary(check):
        typer.echo(line)
    return CHECK_FAILED if check.failures else 0


def _request(args: dict[str, Any], temperature: float) -> Request:
    """Return the request; cheap checks run before torch is imported, and the tasks are read last."""
    from verl_kernel.bench.models.endpoint import Sampling
    from verl_kernel.bench.request import BenchOptions
    from verl_kernel.bench.session import Request
    from verl_kernel.bench.store import make_folder
    from verl_kernel.option_group import option_names
    from verl_kernel.reward.options import refuse_profile

    chosen = {key: args[key] for key in option_names(BenchOptions) if args[key] is not None}
    options, gym = BenchOptions(**chosen), args["gym"]
    refuse_profile(options, gym)
    reward, levels, model = (
        _reward(args["reward"] or [], gym),
        gym_options.read_levels(args["levels"]),
        _model(args),
    )
    if args["out"] is not None:
        make_folder(args["out"])
    suite = _suite(args, levels, gym)
    if args["feedback_chars"] is None:
        options = replace(options, feedback_chars=suite.feedback_chars)
    sampling = Sampling(
        temperature,
        args["top_p"],
        args["max_tokens"] or suite.max_tokens,
        args["request_timeout"],
        args["retries"],
    )
    name = args["model"] or (args["vllm"] or args["kernels"] or Path("model")).resolve().name
    return Request(suite, model, args["out"] or _folder(suite.name, name), options, sampling, gym, reward)


def _model(args: dict[str, Any]) -> ModelChoice:
    from verl_kernel.bench.models.choice import ModelChoice

    model = ModelChoice(
        args["base_url"],
        args["model"],
        args["key_variable"],
        args["vllm"],
        args["vllm_args"],
        args["kernels"],
        args["only_present"],
        args["samples"],
    )
    model.check()
    return model


def _suite(args: dict[str, Any], levels: tuple[int, ...], gym: GymOptions) -> Suite:
    from verl_kernel.bench.suites import load_suite

    if args["name_targets"] and not gym.targets:
        raise ConfigError("--name-targets names the GPUs of --compile-for, which is off: name some there")
    suite = load_suite(args["suite"], levels, gym.targets if args["name_targets"] else ())
    return suite if args["tasks"] is None else suite.first(args["tasks"])


def _reward(settings: list[str], gym: GymOptions) -> ProfilingReward:
    """Return the reward that the command line asks for, given in the keys of a recipe."""
    from verl_kernel.reward.options import KernelGymOptions
    from verl_kernel.reward.profiling import ProfilingReward

    reward = ProfilingReward.from_node(gym_options.read_settings("--reward", settings, "variant=weighted"))
    return KernelGymOptions(env=gym, reward=reward).reward


def _folder(suite: str, model: str) -> Path:
    return Path("outputs") / "bench" / re.sub(r"[^\w.,-]+", "_", f"{suite}-{model}")
