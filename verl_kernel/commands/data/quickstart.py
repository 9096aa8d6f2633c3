# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel data quickstart`: make tasks, a tokenizer and the small model of the CPU recipes."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer


def command(
    out: Annotated[Path, typer.Option(help="Folder to write; created if missing.")],
    seed: Annotated[int, typer.Option(min=0, help="Seed of tasks, corpus, tokenizer and model.")] = 0,
    conversations: Annotated[
        int | None, typer.Option(min=1, help="Length of the cold start; fewer than 6000 make a weaker model sooner.")
    ] = None,
    world: Annotated[
        str,
        typer.Option(help="Row of the table of difficulties: easy, hard (for cpu_hard) or tools (for cpu_tools)."),
    ] = "easy",
    difficulty: Annotated[
        Path | None, typer.Option(help="YAML file with another table of difficulties, whose row is used.")
    ] = None,
) -> None:
    """Make tasks, a tokenizer and a warm-started model for the CPU recipes (seven minutes on 2 cores)."""
    # Idle OpenMP threads that spin would occupy the core that a busy process needs; read when torch is first imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from verl_kernel.data.files import writing_folder
    from verl_kernel.quickstart.options import Quickstart, is_complete

    options = Quickstart(seed=seed, world=world, difficulty=difficulty)
    if conversations is not None:
        options = replace(options, conversations=conversations)
    if is_complete(out, options):
        typer.echo(f"{out} is complete for seed {seed}: nothing to do.")
        return
    with writing_folder(out):
        manifest = _build_with_progress(out, options)
    validated = options.validation
    typer.echo(
        f"{out}: {options.train_tasks} training tasks, {sum(validated.values())} of the validation in {len(validated)} "
        f"splits, a model of {manifest['parameters'] / 1e6:.1f} M parameters, loss {manifest['loss']['last']:.3f}, "
        f"{manifest['seconds']:.0f} s."
    )


def _build_with_progress(out: Path, options: Any) -> dict[str, Any]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from transformers.utils.logging import disable_progress_bar

    from verl_kernel.quickstart.build import build

    # Progress bars of transformers would break up this one.
    disable_progress_bar()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("steps"),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    # Of its own: other packages of the process may silence the console that rich shares (Inspect does).
    with Progress(*columns, console=Console()) as bar:
        task = bar.add_task("drawing tasks and corpus", total=None)

        def advance(step: int, steps: int, loss: float) -> None:
            bar.update(task, completed=step, total=steps, description=f"warm start, loss {loss:.3f}")

        return build(out, options, advance)
