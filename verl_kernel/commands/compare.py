# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel compare A B`: two bench runs of one suite, paired by task."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verl_kernel.bench.score_tables import VIEWS, changes_table, differences_table
from verl_kernel.bench.scores import RunComparison, compare_runs
from verl_kernel.figures.bootstrap import RESAMPLES, SEED, Bootstrap
from verl_kernel.reporting.screen import screen


def command(
    a: Annotated[Path, typer.Argument(metavar="A", help="Folder of a bench run.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Folder of another run of the same suite.")],
    json: Annotated[bool, typer.Option("--json", help="One JSON object instead of tables.")] = False,
    resamples: Annotated[int, typer.Option(min=100, max=100_000, help="Bootstrap resamples.")] = RESAMPLES,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the bootstrap.")] = SEED,
) -> None:
    """Compare two runs, and list the tasks that only one of them solves."""
    runs = compare_runs(a, b, Bootstrap(resamples=resamples, seed=seed))
    if json:
        typer.echo(runs.model_dump_json())
    else:
        _print(runs)


def _print(runs: RunComparison) -> None:
    console, comparison = screen(), runs.comparison
    console.print(
        f"A: {runs.a}\nB: {runs.b}\ntimes: {runs.times}\nspeedups over: {runs.baseline}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    for name, (ours, theirs) in runs.settings.items():
        console.print(f"{name}: {ours} in A, {theirs} in B", markup=False, highlight=False, soft_wrap=True)
    for view in VIEWS[:2]:
        console.print(differences_table(runs, view))
        changed = changes_table(comparison.changes, view)
        console.print("no task changed sides" if changed is None else changed)
    console.print(
        f"{comparison.tasks} tasks, paired; brackets: {100 * comparison.confidence:g} % percentile bootstrap by task, "
        f"{comparison.resamples} resamples, seed {comparison.seed}; * where the interval of B - A leaves out 0",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
