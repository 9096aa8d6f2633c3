# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel plan`: show what a training step would take on a machine that is only described, part by part."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from verl_kernel.commands.preflight import FOLDER, NAME, OVERRIDES

if TYPE_CHECKING:
    from verl_kernel.preflight.step_plan import Rates

MACHINE = typer.Option(metavar="GPUS", help="GPUs, as in 8xH100-80GB (two nodes: 2x8xH100-80GB).")
RATE = typer.Option(metavar="NAME=VALUE", help="Replace an assumed rate, as in gpu_s=5.0; may be given repeatedly.")


def command(
    overrides: Annotated[list[str] | None, OVERRIDES] = None,
    config_name: Annotated[str, NAME] = "kernel_trloo",
    config_dir: Annotated[Path | None, FOLDER] = None,
    machine: Annotated[str, MACHINE] = "8xH100-80GB",
    rate: Annotated[list[str] | None, RATE] = None,
) -> None:
    """Show tokens, evaluations, seconds and memory of a step, and what limits it.

    A model from stated rates, of which none was measured on a GPU: it compares splits, and predicts no time.
    """
    from verl_kernel.preflight import step_plan
    from verl_kernel.preflight.composing import compose_training
    from verl_kernel.preflight.hardware import described
    from verl_kernel.preflight.placement import check_gpus, check_platform, check_shards

    where, rates = described(machine), read_rates(rate or [])
    config = compose_training(config_name, overrides or [], config_dir)
    check_platform(config, where)
    check_shards(config)
    [*check_gpus(config, where)]
    split, shape, gpu = step_plan.split_of(config), step_plan.shape_of(config), step_plan.gpu_of(where)

    def planned(candidate: step_plan.GpuSplit) -> step_plan.StepPlan:
        return step_plan.plan(candidate, shape, gpu, (where.gpu_mb or 0) / 1e3, rates)

    step = planned(split)
    typer.echo(
        f"{config_name} on {machine}: {split.trainers} GPUs train, {split.judges} judges on {split.judge_gpus:g} GPUs; "
        f"a model of {shape.parameters / 1e9:.1f}e9 parameters"
    )
    typer.echo(f"{step.tokens / 1e6:.2f} million tokens and {step.evaluations} evaluations a step")
    for part, seconds in step.seconds.items():
        typer.echo(f"{seconds:9.0f} s  {seconds / step.step_s:4.0%}  {part}")
    typer.echo(f"{step.step_s:9.0f} s        a step; limited by {step.limit}: {step_plan.REMEDIES[step.limit]}")
    typer.echo("Memory of a trainer's GPU, of which vLLM's part is free while the model is trained:")
    for part, gigabytes in step.memory.items():
        typer.echo(f"{gigabytes:9.1f} GB       {part}")
    typer.echo("Other splits: seconds of a step, and the share of judging beyond generating:")
    for words, candidate in step_plan.choices(split, where.nodes).items():
        alternative = planned(candidate)
        typer.echo(f"{alternative.step_s:9.0f} s  {alternative.judging_share:4.0%}  {words}")
    assumed = ", ".join(f"{name}={value:g}" for name, value in vars(rates).items())
    typer.echo(f"assumed, not measured: {assumed}")


def read_rates(words: list[str]) -> Rates:
    """Return the rates with those that a caller gives.

    Raises:
        ConfigError: a word names no rate, or its value is out of range.
    """
    from verl_kernel.errors import ConfigError
    from verl_kernel.preflight.step_plan import Rates

    stated: dict[str, float] = {}
    for word in words:
        name, _, value = word.partition("=")
        try:
            stated[name] = float(value)
        except ValueError:
            raise ConfigError(f"--rate is {word!r}: write NAME=VALUE with a number, as in gpu_s=5.0") from None
    return Rates.from_node(stated)
