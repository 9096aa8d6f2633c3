# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel bench-curves RUN...`: compare what more turns and their tokens gain in several runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from verl_kernel.bench.curves import FIGURE, Curves, curves, plot_curves, title
from verl_kernel.bench.records import read_answers, read_tasks
from verl_kernel.bench.scores import attempt, baseline, run_plan, times
from verl_kernel.bench.validation import read_validation
from verl_kernel.data.files import check_file, writing
from verl_kernel.errors import DataError
from verl_kernel.figures.attempts import RunPlan
from verl_kernel.figures.figures import FIGURES
from verl_kernel.figures.record import Estimate
from verl_kernel.reporting.screen import screen

SUFFIXES = (".svg", ".png", ".pdf")


def command(
    runs: Annotated[
        list[Path], typer.Argument(help="Folders of `verl-kernel bench`, or files of trainer.validation_data_dir.")
    ],
    out: Annotated[Path, typer.Option(help="Figure to write; the points go into a .json beside it.")] = Path(
        "curves.svg"
    ),
    figure: Annotated[str, typer.Option(help="What to show, a name in the table of scores.")] = FIGURE,
) -> None:
    """Show a score of the last and the best answer at every turn, and draw it over turns and over tokens."""
    _check(out, figure)
    measured = [_curves(name, run, figure) for name, run in zip(_names(runs), runs, strict=True)]
    screen().print(_table(measured))
    data = [run.model_dump(mode="json") for run in measured]
    with writing(out.with_suffix(".json")) as part:
        part.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    try:
        plot_curves(measured, out)
    except ModuleNotFoundError as exc:
        typer.echo(f"Error: {exc}: install the extra `plot` for {out}; its points are written", err=True)
        raise typer.Exit(1) from exc


def _check(out: Path, figure: str) -> None:
    if out.suffix not in SUFFIXES:
        raise DataError(f"--out is {out}: name a file that ends in {', '.join(SUFFIXES)}")
    if figure not in FIGURES:
        raise DataError(f"--figure is {figure!r}: name one of {', '.join(FIGURES)}")
    check_file(out)


def _names(runs: Sequence[Path]) -> list[str]:
    """Return the names of the runs' folders, with their parents' names where two are equal."""
    folders = [run.resolve() if run.is_dir() else run.resolve().parent for run in runs]
    names = [folder.name for folder in folders]
    return names if len({*names}) == len(names) else [f"{folder.parent.name}/{folder.name}" for folder in folders]


def _curves(name: str, run: Path, figure: str) -> Curves:
    if run.is_dir():
        header, turns = read_answers(run)
        plan = run_plan(header, read_tasks(run), turns)
    else:
        turns = read_validation(run)
        plan, header = RunPlan.of([attempt(turn) for turn in turns]), None
    run_curves = curves(name, [attempt(turn) for turn in turns], plan, figure)
    over = "" if header is None else f" over {baseline(header, turns)}"
    return run_curves.model_copy(update={"times": f"{times(turns)}{over}"})


def _table(runs: Sequence[Curves]) -> Table:
    table = Table(title=title(runs), title_justify="left")
    for name in ("run", "turn", "last turn", "best of history", "tokens of a sample"):
        table.add_column(name, justify="left" if name == "run" else "right")
    for run in runs:
        for index, point in enumerate(run.by_turn):
            tokens = "-" if run.mean_tokens is None else f"{run.mean_tokens[index]:.0f}"
            table.add_row(run.name, str(point.at), _cell(point.last), _cell(point.best), tokens)
        table.add_section()
    return table


def _cell(estimate: Estimate) -> str:
    if estimate.value is None:
        return "-"
    return f"{estimate.value:.3f}" + ("" if estimate.low is None else f" [{estimate.low:.3f}, {estimate.high:.3f}]")
