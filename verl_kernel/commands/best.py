# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel best RUN`: write the best verified kernel of each task as an importable file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from verl_kernel.bench.best_kernels import BestKernel, KernelFile, best_of_run, write_kernel
from verl_kernel.data.files import writing_folder
from verl_kernel.errors import DataError
from verl_kernel.reporting.screen import screen


def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a bench run or of a training run.")],
    out: Annotated[Path, typer.Option(help="Folder for the files.")] = Path("best_kernels"),
) -> None:
    """Write the best verified kernel of each task; never replace a better file."""
    kernels = best_of_run(run)
    if not kernels:
        raise DataError(f"{run} has no verified kernel: nothing is written")
    with writing_folder(out):
        files = [write_kernel(out, one.provenance, one.code) for one in kernels]
    screen().print(_table(kernels, files))


def _table(kernels: list[BestKernel], files: list[KernelFile]) -> Table:
    table = Table("task", "speedup", "over", "times", "file", "", title="best kernels", title_justify="left")
    for kernel, file in zip(kernels, files, strict=True):
        one = kernel.provenance
        speedup = "unknown" if one.speedup is None else f"{one.speedup:.2f}x"
        sure = "" if one.sure_speedup in (None, one.speedup) else f" (at least {one.sure_speedup:.2f}x)"
        over = one.reference_mode or "-"
        what = f"{file.what}: {file.why}" if file.why else file.what
        table.add_row(*map(escape, (one.task, speedup + sure, over, one.timing_source or "-", str(file.path), what)))
    return table
