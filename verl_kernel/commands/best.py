# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel best RUN`: write the best verified kernel of each task as an importable file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from verl_kernel.bench.best_kernels import BestKernel, KernelFile, Provenance, best_of_run, write_kernel
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
        files = [write_kernel(out, kernel.provenance, kernel.code) for kernel in kernels]
    screen().print(_table(kernels, files))


def _doubts(origin: Provenance) -> list[str]:
    """Return what speaks against using a kernel, although it is right."""
    speedup = origin.speedup if origin.sure_speedup is None else origin.sure_speedup
    doubts = [] if speedup is None or speedup >= 1 else ["not surely faster than the reference"]
    return doubts + (["its kernels compute nothing"] if origin.time_coverage == 0 else [])


def _table(kernels: list[BestKernel], files: list[KernelFile]) -> Table:
    table = Table("task", "speedup", "over", "times", "file", "", title="best kernels", title_justify="left")
    for kernel, file in zip(kernels, files, strict=True):
        origin = kernel.provenance
        speedup = "unknown" if origin.speedup is None else f"{origin.speedup:.2f}x"
        sure = "" if origin.sure_speedup in (None, origin.speedup) else f" (at least {origin.sure_speedup:.2f}x)"
        over = origin.reference_mode or "-"
        what = "; ".join([f"{file.what}: {file.why}" if file.why else file.what, *_doubts(origin)])
        table.add_row(
            *map(escape, (origin.task, speedup + sure, over, origin.timing_source or "-", str(file.path), what))
        )
    return table
