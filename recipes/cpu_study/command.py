# SPDX-License-Identifier: Apache-2.0
"""`python -m recipes.cpu_study STUDY.yaml --out DIR`: train every arm with every seed, then compare them."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from recipes.cpu_study import comparisons, figure, origin, runs, summary
from recipes.cpu_study.plan import Run, Study, read_study
from verl_kernel.commands.sentences import guarded
from verl_kernel.data.files import writing_folder
from verl_kernel.errors import ConfigError, InfraError
from verl_kernel.option_group import nearest
from verl_kernel.reporting.screen import counted

app = typer.Typer(add_completion=False)


@app.command()
@guarded
def command(
    plan: Annotated[Path, typer.Argument(help="The study: recipe, arms and seeds (YAML).")],
    out: Annotated[Path, typer.Option(help="Folder for runs, raw data, table and figure.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would run and how long it takes.")] = False,
    summary_only: Annotated[bool, typer.Option("--summary-only", help="Only compare what has finished.")] = False,
    arms: Annotated[str, typer.Option(help="Only train these arms, as in a,b; all are compared.")] = "",
    power: Annotated[
        bool, typer.Option("--power", help="Only say how likely each comparison is to be decided.")
    ] = False,
    rows: Annotated[Path | None, typer.Option(help="Only compare the rows of this study.jsonl.")] = None,
) -> None:
    """Run a study's missing runs, then write its rows, table and figures."""
    console = Console(soft_wrap=True)
    study = read_study(plan)
    if power:
        typer.echo(comparisons.power_table(study), nl=False)
        return
    if rows is not None:
        _compare(study, runs.read_rows(rows), out, console)
        return
    chosen = _chosen(study, arms)
    todo = [run for run in chosen if runs.finished(run, out) is None]

    def left() -> str:
        return _hours(runs.minutes_left(study, out, chosen))

    console.print(f"{counted(len(chosen), 'run')}, {len(chosen) - len(todo)} finished; about {left()} left")
    if dry_run:
        for run in todo:
            console.print(f"{run.name}: {shlex.join(run.command[1:])}", markup=False, highlight=False)
        return
    with writing_folder(out):
        failed = [] if summary_only else _run_all(todo, left, out, console)
        _compare(study, runs.collect(study, out), out, console)
    if failed:
        raise InfraError(f"{len(failed)} of the study's arms failed; the first: {failed[0]}")


def _run_all(todo: list[Run], left: Callable[[], str], out: Path, console: Console) -> list[InfraError]:
    """Train the runs, skipping an arm that has failed once; return the failures."""
    failed: dict[str, InfraError] = {}
    for run in todo:
        if run.arm.name in failed:
            continue
        console.print(f"{run.name}: {run.arm.title}, seed {run.seed}", highlight=False)
        try:
            runs.execute(run, out, _train)
        except InfraError as exc:
            failed[run.arm.name] = exc
            console.print(str(exc), style="red", markup=False, highlight=False)
        console.print(f"about {left()} left", highlight=False)
    return list(failed.values())


def _chosen(study: Study, arms: str) -> list[Run]:
    names = [name.strip() for name in arms.split(",") if name.strip()]
    known = [arm.name for arm in study.arms]
    if unknown := sorted(set(names) - set(known)):
        near = nearest(unknown[0], known)
        raise ConfigError(f"--arms names {unknown[0]!r}; {near}the study's arms are {', '.join(known)}")
    return [run for run in study.runs() if not names or run.arm.name in names]


def _train(folder: Path, argv: list[str]) -> int:
    """Train in a folder; if the study is asked to end, it ends its run first."""
    with subprocess.Popen([sys.executable, "-m", "verl_kernel", "watch", str(folder), "--", *argv]) as child:

        def end(number: int, frame: object) -> None:
            child.terminate()
            raise SystemExit(128 + number)  # the context waits for the child

        signal.signal(signal.SIGTERM, end)
        return child.wait()


def _compare(study: Study, rows: list[dict[str, Any]], out: Path, console: Console) -> None:
    if not rows:
        console.print("no run has finished yet, so there is nothing to compare")
        return
    titles = {arm.name: arm.title for arm in study.arms}
    text = summary.table(rows, titles)
    if study.comparisons:
        text += "\n" + comparisons.effects_table(rows, study.comparisons)
    if made := origin.origins(rows):
        text += "\n" + made
    out.mkdir(parents=True, exist_ok=True)
    (out / "table.md").write_text(text)
    clock = "simulated time" if any(row.get("kernel/simulated_clock") for row in rows) else "measured time"
    heading = f"{study.recipe}, {study.steps} steps, {clock}"
    figure.plot(rows, titles, out / "study.png", heading)
    if study.comparisons:
        figure.plot_effects(rows, study.comparisons, out / "effects.png", heading)
    console.print(text, markup=False, highlight=False)
    console.print(f"raw data, table and figure: {out}", highlight=False)


def _hours(minutes: float) -> str:
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
