# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel data audit`: find poor tasks, and show the evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from verl_kernel.commands.gym_options import read_levels
from verl_kernel.commands.sentences import INTERRUPTED
from verl_kernel.errors import DataError
from verl_kernel.reporting.screen import counted, screen, with_bar

if TYPE_CHECKING:
    from verl_kernel.data.task_list import Listed
    from verl_kernel.env import Audit, GymOptions


def command(
    *,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="Tasks: parquet, Python file, folder or KernelBench.")],
    out: Annotated[
        Path | None, typer.Option(help="JSON lines file; finished tasks in it are skipped on a rerun.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One audit per line instead of a table.")] = False,
    levels: Annotated[str, typer.Option(help="Levels of KernelBench, as in 1,2; default all.")] = "",
    num_judges: Annotated[int, typer.Option(min=1, help="Tasks audited at a time.")] = 1,
    true_size: Annotated[str, typer.Option(help="auto: run large tasks at reduced sizes; or off.")] = "auto",
    timeout: Annotated[float, typer.Option(min=1.0, help="Seconds for each part of a task's audit.")] = 60.0,
    train: Annotated[
        Path | None, typer.Option(help="Parquet file of training tasks; also counts PATH's near duplicates of them.")
    ] = None,
) -> None:
    """Look for tasks that an answer without a kernel passes, or that cannot be timed."""
    from verl_kernel.data.task_list import list_tasks
    from verl_kernel.env import GymOptions

    options = GymOptions(
        device="cpu",
        num_judges=num_judges,
        true_size=cast(Literal["auto", "off"], true_size),
        reference_timeout_s=timeout,
    )
    tasks = list_tasks(path, read_levels(levels))
    if train is not None:
        _print_overlaps(train, path, json)
    audits: list[Audit] = []
    try:
        for audit in _audits(tasks, out, options):
            audits.append(audit)
            if json:
                typer.echo(audit.model_dump_json())
    except KeyboardInterrupt:
        _print(audits, json)
        typer.echo(_interrupted(len(audits), len(tasks), out), err=True)
        raise typer.Exit(INTERRUPTED) from None
    _print(audits, json)
    if all(audit.unfit is not None for audit in audits):
        first = f"{audits[0].task_id}: {audits[0].unfit}"
        raise DataError(f"{path} holds no task that can be judged ({first}): mend their references, or name others")


def _print_overlaps(train: Path, val: Path, json: bool) -> None:
    from rich.table import Table

    from verl_kernel.data.overlap import overlaps

    table = Table("data source", "tasks", "near duplicates in training", "closest", title=f"{val} and {train}")
    for overlap in overlaps(train, val):
        table.add_row(overlap.source, str(overlap.tasks), str(overlap.near), f"{overlap.closest:.2f}")
    screen(stderr=json).print(table)


def _print(audits: Sequence[Audit], json: bool) -> None:
    if not json:
        _print_table(audits)
    typer.echo(_summary(audits), err=json)


def _interrupted(audited: int, tasks: int, out: Path | None) -> str:
    storage = (
        "without --out nothing of it is kept" if out is None else f"{out} keeps them, and the same command goes on"
    )
    return f"Interrupted: {audited} of {counted(tasks, 'task')} audited; {storage}."


def _audits(tasks: Sequence[Listed], out: Path | None, options: GymOptions) -> Iterator[Audit]:
    """Yield audits, each written to the file as soon as it is made, with a progress bar."""
    from verl_kernel.data.audit import AuditFile, audit_tasks

    file = None if out is None else AuditFile(out)
    results = audit_tasks(tasks, {} if file is None else file.audits, options)
    for audit, is_new in with_bar(results, "auditing", len(tasks)):
        if file is not None and is_new:
            file.add(audit)
        yield audit


def _print_table(audits: Sequence[Audit]) -> None:
    from rich.table import Table

    table = Table("task", "defect", "evidence")
    for audit in audits:
        if audit.unfit is not None:
            table.add_row(audit.task_id, "no task", audit.unfit)
        for finding in audit.findings:
            table.add_row(audit.task_id, finding.defect + " (as drawn)" * finding.only_drawn, finding.evidence)
    if table.row_count:
        screen().print(table)


def _summary(audits: Sequence[Audit]) -> str:
    """Return how many tasks have which defect."""
    counts = Counter("no task" for audit in audits if audit.unfit is not None)
    for audit in audits:
        counts.update({finding.defect + ", as drawn only" * finding.only_drawn for finding in audit.findings})
    sound = sum(audit.unfit is None and not audit.findings for audit in audits)
    defects = "".join(f"; {count} {name}" for name, count in counts.most_common())
    return f"{counted(len(audits), 'task')}, {sound} without a finding{defects}"
