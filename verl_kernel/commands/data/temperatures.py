# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel data temperatures`: let a validation ask at several temperatures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    file: Annotated[Path, typer.Argument(metavar="TASKS.parquet", help="Tasks of a validation.")],
    out: Annotated[Path, typer.Option(help="Parquet file to write; name it in data.val_files.")],
    at: Annotated[str, typer.Option(help="The temperatures; 0 is greedy.")] = "1,0.6,0.3,0",
) -> None:
    """Write tasks once for each temperature, so that one validation asks at all of them."""
    from verl_kernel.data.rows import check_rows, read_rows, write_rows
    from verl_kernel.data.temperatures import at_temperatures, read_temperatures

    temperatures = read_temperatures(at, "--at")
    check_rows(file)
    rows = at_temperatures(read_rows(file), temperatures)
    write_rows(rows, out)
    typer.echo(f"{out}: {len(rows)} rows, {len(rows) // len(temperatures)} tasks at {len(temperatures)} temperatures")
