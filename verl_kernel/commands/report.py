# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel report RUN_DIR`: the steps of a run as a table and a reward curve."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from verl_kernel.errors import DataError
from verl_kernel.evaluation.steps import plot_steps, read_steps, steps_table


def command(
    run_dir: Annotated[Path, typer.Argument(help="Folder of the run; holds metrics.jsonl.")],
) -> None:
    """Print the steps of a run and save its reward curve as reward.png."""
    try:
        steps = read_steps(run_dir / "metrics.jsonl")
    except DataError as exc:
        typer.echo(f"error: {exc}", err=True)
        raise typer.Exit(2) from exc
    simulated = any(step.get("kernel/simulated_clock") for step in steps)
    console = Console()
    console.print(steps_table(steps, f"{len(steps)} steps of {run_dir}"))
    if not steps:
        return
    plot_steps(steps, run_dir / "reward.png", f"{run_dir.name}{', simulated time' if simulated else ''}")
    console.print(f"reward curve: {run_dir / 'reward.png'}")
