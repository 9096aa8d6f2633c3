# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel bench-harbor RUN`: the tasks of a bench, for harnesses that read Harbor's task format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verl_kernel.bench.harbor import write_tasks
from verl_kernel.data.files import writing_folder


def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of `verl-kernel bench`.")],
    out: Annotated[Path, typer.Option(help="Folder for the tasks, a folder each.")] = Path("harbor_tasks"),
) -> None:
    """Write a run's tasks in Harbor's format, each with the run's best kernel as its solution."""
    with writing_folder(out):
        written, left_out = write_tasks(run, out)
    typer.echo(f"{out}: {written} tasks, {left_out} left out, whose program is not in the run")
