# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel bench-board RUN...`: several benches as one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verl_kernel.bench.page.board import write_board
from verl_kernel.data.files import check_file


def command(
    runs: Annotated[list[Path], typer.Argument(help="Folders of `verl-kernel bench`.")],
    out: Annotated[Path, typer.Option(help="Page to write.")] = Path("board.html"),
) -> None:
    """Write one page in which runs are compared, suite by suite."""
    check_file(out)
    typer.echo(f"board: {write_board(runs, out)}")
