# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel data coldstart`: conversations of a strong model that led to kernels, for the cold start of another.

It is a run of `verl-kernel bench` with a few turns, followed by a conversion of its folder. The same command continues
a killed run; without a model, the command converts an existing run.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from verl_kernel.commands import gym_options
from verl_kernel.commands.gym_options import read_levels
from verl_kernel.commands.sentences import INTERRUPTED
from verl_kernel.env import GymOptions
from verl_kernel.errors import ConfigError, DataError

if TYPE_CHECKING:
    from verl_kernel.bench.conversations import TalkSelection
    from verl_kernel.bench.suites import Suite


@gym_options.takes_gym("device", "num_judges", "compile_for", "memory_checks")
def command(
    *,
    suite: Annotated[str, typer.Option(help="Tasks: kernelbench:PATH, a parquet file, a folder of references, cpu.")],
    run: Annotated[Path, typer.Option(help="Folder of the run; an unfinished run continues.")],
    out: Annotated[Path, typer.Option(help="Parquet file of conversations to write.")],
    base_url: Annotated[str | None, typer.Option(help="An OpenAI-compatible endpoint, as http://host:8000/v1.")] = None,
    model: Annotated[str | None, typer.Option(help="The model's name at the endpoint.")] = None,
    key_variable: Annotated[
        str | None, typer.Option(help="Environment variable with the key; default OPENAI_API_KEY.")
    ] = None,
    vllm: Annotated[Path | None, typer.Option(help="Folder of a model to serve with vLLM for the run.")] = None,
    levels: Annotated[str, typer.Option(help="Levels of KernelBench, as 1,2.")] = "",
    tasks: Annotated[int | None, typer.Option(help="Take only this many tasks, the first ones.")] = None,
    samples: Annotated[int, typer.Option("-n", "--samples", help="Trajectories of each task.")] = 4,
    turns: Annotated[int, typer.Option(help="Turns of each trajectory.")] = 3,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 is greedy.")] = 1.0,
    top_p: Annotated[float, typer.Option(min=0.0, max=1.0)] = 1.0,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Longest answer; default is the suite's.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of answers and of judges' inputs.")] = 0,
    requests: Annotated[int, typer.Option(help="Requests in flight at a time.")] = 16,
    keep: Annotated[str, typer.Option(help="best: cut a talk after its best turn; last: keep all of it.")] = "best",
    min_speedup: Annotated[float, typer.Option(min=0.0, help="Least speedup of the last turn that is kept.")] = 0.0,
    per_task: Annotated[int | None, typer.Option(min=1, help="Most conversations per task; keeps the fastest.")] = None,
    gym: GymOptions,
) -> None:
    """Make conversations for a cold start: a strong model, several turns, judged by the gym."""
    args = dict(locals())
    logging.getLogger("verl_kernel").addHandler(logging.NullHandler())  # the folder or the error holds the messages
    # Idle OpenMP threads that spin would take the core a judge needs; read when torch is first imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        selection = _coldstart(args)
    except KeyboardInterrupt:
        typer.echo("Interrupted: what was finished stays, and the same command goes on.", err=True)
        raise typer.Exit(INTERRUPTED) from None
    left_out = "".join(f"; {count} left out because {reason}" for reason, count in selection.left_out.most_common())
    typer.echo(f"{out}: {len(selection.talks)} conversations about {selection.tasks} tasks{left_out}")


def _coldstart(args: dict[str, Any]) -> TalkSelection:
    from verl_kernel.bench.conversations import Keep, talks_of_run
    from verl_kernel.bench.suites import load_suite
    from verl_kernel.data.conversations import write_talks
    from verl_kernel.data.files import check_file

    if args["keep"] not in ("best", "last"):
        raise ConfigError(f"--keep is {args['keep']!r}: give best or last")
    check_file(args["out"])
    suite = load_suite(args["suite"], read_levels(args["levels"]))
    suite = suite if args["tasks"] is None else suite.first(args["tasks"])
    if args["base_url"] is not None or args["vllm"] is not None:
        _run(suite, args)
    selection = talks_of_run(args["run"], suite, cast(Keep, args["keep"]), args["min_speedup"], args["per_task"])
    if not selection.talks:
        reasons = "; ".join(f"{count} because {reason}" for reason, count in selection.left_out.most_common())
        raise DataError(f"{args['run']} has no conversation to keep: {reasons or 'nothing was answered yet'}")
    write_talks(selection.talks, args["out"])
    return selection


def _run(suite: Suite, args: dict[str, Any]) -> None:
    from verl_kernel.bench.models.choice import ModelChoice
    from verl_kernel.bench.models.endpoint import Sampling
    from verl_kernel.bench.request import BenchOptions
    from verl_kernel.bench.session import Request, run_bench

    chosen = {key: args[key] for key in ("samples", "turns", "seed", "requests")}
    sampling = Sampling(args["temperature"], args["top_p"], args["max_tokens"] or suite.max_tokens)
    request = Request(
        suite,
        ModelChoice(args["base_url"], args["model"], args["key_variable"], args["vllm"]),
        args["run"],
        BenchOptions(**chosen, feedback_chars=suite.feedback_chars),
        sampling,
        args["gym"],
    )
    run_bench(request, lambda text: typer.echo(text, err=True))
