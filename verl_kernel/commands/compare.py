# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel compare A B`: two bench runs of one suite, paired by task.

The exit code is 1 if B does not reach what `--at-least` asks for, and 2 for a usage error.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from verl_kernel.bench.score_tables import VIEWS, cell, changes_table, differences_table
from verl_kernel.bench.scores import RunComparison, compare_runs
from verl_kernel.errors import ConfigError
from verl_kernel.figures.bootstrap import RESAMPLES, SEED, Bootstrap
from verl_kernel.figures.figures import EVERY
from verl_kernel.option_group import nearest
from verl_kernel.reporting.screen import screen

MISSED = 1
"""Exit code if a figure does not reach its goal."""


def command(
    *,
    a: Annotated[Path, typer.Argument(metavar="A", help="Folder of a bench run.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Folder of another run of the same suite.")],
    json: Annotated[bool, typer.Option("--json", help="One JSON object instead of tables.")] = False,
    resamples: Annotated[int, typer.Option(min=100, max=100_000, help="Bootstrap resamples.")] = RESAMPLES,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the bootstrap.")] = SEED,
    at_least: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIGURE=X", help="Exit with 1 unless B - A of a figure of the last turn is surely X or more."
        ),
    ] = None,
) -> None:
    """Compare two runs, and list the tasks that only one of them solves."""
    goals = _goals(at_least or [])
    runs = compare_runs(a, b, Bootstrap(resamples=resamples, seed=seed))
    if json:
        typer.echo(runs.model_dump_json())
    else:
        _print(runs)
    missed = [line for figure, goal in goals.items() if (line := _missed(runs, figure, goal))]
    for line in missed:
        typer.echo(line, err=True)
    if missed:
        raise typer.Exit(MISSED)


def _goals(settings: list[str]) -> dict[str, float]:
    goals: dict[str, float] = {}
    for setting in settings:
        figure, _, goal = setting.rpartition("=")
        if figure not in EVERY:
            known = f"{nearest(figure, EVERY)}give one of {', '.join(EVERY)}, as in repaired=0.2"
            raise ConfigError(f"--at-least is {setting!r}; {known}")
        least = _number(goal)
        if not math.isfinite(least):
            raise ConfigError(f"--at-least is {setting!r}; {goal!r} is no finite number, as in repaired=0.2")
        goals[figure] = max(least, goals.get(figure, least))
    return goals


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _missed(runs: RunComparison, figure: str, goal: float) -> str:
    """Return why a figure does not surely reach its goal; empty if it does."""
    differences = {known.figure: known for known in runs.comparison.differences if known.view == "last turn"}
    change = differences[figure].difference if figure in differences else None
    if change is None or change.value is None:
        return f"{figure}: the runs do not show it, so it is not surely {goal:g}"
    if change.low is not None and change.low >= goal:
        return ""
    return f"{figure}: B - A is {cell(figure, change, signed=True)}, not surely {goal:g}"


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
