# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel data split`: hold out tasks that have no near duplicates among the training tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    file: Annotated[Path, typer.Argument(metavar="TASKS.parquet", help="Tasks, as a recipe trains on.")],
    out: Annotated[Path, typer.Option(help="Folder for train.parquet, val.parquet and split.json.")],
    val: Annotated[float, typer.Option(help="Share of the tasks to hold out.")] = 0.1,
    threshold: Annotated[float, typer.Option(help="Similarity at which two tasks count as one family.")] = 0.7,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the choice of families.")] = 0,
) -> None:
    """Split tasks into training and validation by families of near duplicates."""
    from verl_kernel.data.split import split

    outcome = split(file, out, val, threshold, seed)
    train, largest = outcome.tasks - outcome.held_out_tasks, len(outcome.families[0])
    typer.echo(
        f"{out}: {train} tasks to train on, {outcome.held_out_tasks} held out in {len(outcome.held_out)} of "
        f"{len(outcome.families)} families (largest: {largest} tasks); the most similar pair across is "
        f"{outcome.closest:.2f} similar"
    )
