# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel report RUN_DIR`: a run's steps, what they changed, its curves and best kernels; or a bench's page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from verl_kernel.errors import DataError
from verl_kernel.reporting.curves import plot_run
from verl_kernel.reporting.facts import timing_source
from verl_kernel.reporting.page import write_page
from verl_kernel.reporting.steps import Step, read_steps, read_validations, steps_table
from verl_kernel.reporting.summary import before_and_after, changes_table, first_and_last, window


def command(
    run_dir: Annotated[Path, typer.Argument(help="Folder of the run; holds metrics.jsonl, or run.json of a bench.")],
) -> None:
    """Print a run's steps and what they changed, and write report.html and reward.png into its folder."""
    try:
        if (run_dir / "run.json").is_file():
            typer.echo(f"report: {_bench_page(run_dir)}")
            return
        steps, validations = (read(run_dir / "metrics.jsonl") for read in (read_steps, read_validations))
    except DataError as exc:
        typer.echo(f"Error: {exc}", err=True)
        raise typer.Exit(2) from exc
    console = Console()
    console.print(steps_table(steps, f"{len(steps)} steps of {run_dir}"))
    figure = _figure(run_dir, steps, validations)
    page = write_page(run_dir, steps, validations, figure)
    if held_out := before_and_after(validations):
        ends = [f"step {validations[i]['step']}" for i in (0, -1)]
        console.print(changes_table(held_out, "held-out tasks", *ends))
    if changes := first_and_last(steps):
        size = window(steps)
        console.print(changes_table(changes, "training", f"first {size} steps", f"last {size} steps"))
    console.print(f"times: {timing_source(steps)}\nreport: {page}", markup=False, highlight=False, soft_wrap=True)


def _bench_page(folder: Path) -> Path:
    from verl_kernel.bench.page.page import write_page as write_bench_page

    return write_bench_page(folder)


def _figure(run_dir: Path, steps: Sequence[Step], validations: Sequence[Step]) -> Path | None:
    if not steps:
        return None
    path = run_dir / "reward.png"
    try:
        plot_run(steps, validations, path, f"{run_dir.resolve().name}, times: {timing_source(steps)}")
    except ModuleNotFoundError:
        return None
    return path
