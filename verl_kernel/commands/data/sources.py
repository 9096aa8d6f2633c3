# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel data rows` and `data talks`: convert local files of data sets, or one's own, for the recipes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verl_kernel.commands.gym_options import read_levels, read_targets

_SOURCE = "Which data set: {}."
_PATH = typer.Argument(metavar="PATH", help="A parquet or JSON lines file of it, or a folder; no downloads.")
_OUT = typer.Option(help="Parquet file to write; a file beside it lists the rows left out.")
ROWS = (
    "folder (reference programs of your own), kernelbench (a checkout, too), sol-execbench, flashinfer-trace, "
    "agentkernelarena, drkernel-rl, drkernel-validation, kernelbook or kernelsmith-rl"
)
TALKS = "drkernel-coldstart or kernelsmith-sft"


def rows(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help=_SOURCE.format(ROWS))],
    path: Annotated[Path, _PATH],
    out: Annotated[Path, _OUT],
    levels: Annotated[str, typer.Option(help="Levels of kernelbench, as in 1,2; default all.")] = "",
    targets: Annotated[str, typer.Option(help="GPUs that our own prompts name, as in sm_90,gfx942.")] = "",
) -> None:
    """Convert reference programs of your own, or a published data set, to tasks for reinforcement learning."""
    _convert(source, "rows", path, out, levels=levels, targets=read_targets("--targets", targets))


def talks(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help=_SOURCE.format(TALKS))],
    path: Annotated[Path, _PATH],
    out: Annotated[Path, _OUT],
) -> None:
    """Convert a published data set to conversations for a cold start."""
    _convert(source, "talks", path, out)


def _convert(source: str, kind: str, path: Path, out: Path, *, levels: str = "", targets: tuple[str, ...] = ()) -> None:
    from verl_kernel.data.published import summary
    from verl_kernel.data.sources import convert_source

    written = convert_source(source, kind, path, out, levels=read_levels(levels), targets=targets)
    typer.echo(f"{out}: {summary(written)}")
