# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel report RUN_DIR`: show a run's steps, their changes, its curves and best kernels; or a bench's page."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from verl_kernel.data.files import writing_folder
from verl_kernel.errors import DataError
from verl_kernel.reporting.page import write_page
from verl_kernel.reporting.screen import counted, screen
from verl_kernel.reporting.steps import Step, earlier, read_steps, read_validations, steps_table
from verl_kernel.reporting.summary import (
    answers,
    before_and_after,
    changes_table,
    first_and_last,
    right_answers,
    timing_source,
    window,
)


def command(
    run_dir: Annotated[Path, typer.Argument(help="Folder of the run; holds metrics.jsonl, or run.json of a bench.")],
) -> None:
    """Print a run's steps and what they changed, and write report.html into its folder."""
    with writing_folder(run_dir, "RUN_DIR") if run_dir.is_dir() else nullcontext():
        _report(run_dir)


def _report(run_dir: Path) -> None:
    if _is_bench(run_dir):
        typer.echo(f"report: {_bench_page(run_dir)}")
        return
    steps, validations = _read(run_dir)
    console = screen()
    console.print(steps_table(steps, f"{counted(len(steps), 'step')} of {run_dir}"))
    page = write_page(run_dir, steps, validations)
    validated = before_and_after(validations)
    if len({change.name.rpartition(": ")[0] for change in validated}) > 1:  # the page has all their figures
        console.print(right_answers(validations, answers(run_dir)))
    elif validated:
        when = [f"step {validation['step']}" for validation in (validations[0], *validations[1:][-1:])]
        console.print(changes_table(validated, "validation", *when))
    if changes := first_and_last(steps):
        size = counted(window(steps), "step")
        console.print(changes_table(changes, "training", f"first {size}", f"last {size}"))
    console.print(f"times: {timing_source(steps)}\nreport: {page}", markup=False, highlight=False, soft_wrap=True)


def _is_bench(run_dir: Path) -> bool:
    """Whether a folder belongs to a bench; a training run's has metrics, even if a study also keeps a run.json there.

    Raises:
        DataError: it belongs to neither.
    """
    advice = "name the folder of a training run (it holds metrics.jsonl) or of `verl-kernel bench` (it holds run.json)"
    if not run_dir.is_dir():
        raise DataError(f"{run_dir} {'is a file' if run_dir.exists() else 'does not exist'}: {advice}")
    metrics = run_dir / "metrics.jsonl"
    if metrics.is_file() or earlier(metrics).is_file():
        return False
    if not (run_dir / "run.json").is_file():
        raise DataError(f"{run_dir} holds neither metrics.jsonl nor run.json: {advice}")
    return True


def _read(run_dir: Path) -> tuple[list[Step], list[Step]]:
    metrics = run_dir / "metrics.jsonl"
    steps, validations = read_steps(metrics), read_validations(metrics)
    if not steps and not validations:
        raise DataError(
            f"{metrics} holds no step and no validation: name the folder of a run that has logged one, or see "
            f"{run_dir / 'train.log'} for what became of this one"
        )
    return steps, validations


def _bench_page(folder: Path) -> Path:
    from verl_kernel.bench.page.page import write_page as write_bench_page
    from verl_kernel.bench.records import read_answers

    read_answers(folder)  # a page of no answers would show nothing
    return write_bench_page(folder)
