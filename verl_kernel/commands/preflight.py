# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel preflight`: show why a training would be refused, without starting anything."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from verl_kernel.errors import VerlKernelError

OVERRIDES = typer.Argument(metavar="[OVERRIDES]...", help="Hydra overrides, as the training gets them.")
NAME = typer.Option("--config-name", "-cn", help="The recipe; default is verl's own configuration.")
FOLDER = typer.Option("--config-dir", "-cd", help="Folder with your own recipes.")
MACHINE = typer.Option(
    metavar="GPUS", help="Check for a machine that is only described, as in 8xH100-80GB (two nodes: 2x8xH100-80GB)."
)

_QUIET = {"VERL_LOGGING_LEVEL": "WARNING", "TRANSFORMERS_VERBOSITY": "error", "VLLM_LOGGING_LEVEL": "ERROR"}
"""Levels of other packages' lines, unless the user asks for more: what they say of an import is no objection."""


def command(
    overrides: Annotated[list[str] | None, OVERRIDES] = None,
    config_name: Annotated[str, NAME] = "ppo_trainer",
    config_dir: Annotated[Path | None, FOLDER] = None,
    machine: Annotated[str, MACHINE] = "",
) -> None:
    """Check a training's configuration, data and machine without starting anything.

    Takes the arguments of `python -m verl.trainer.main_ppo`. Exit 0: no objection; 1: the first one, in a sentence.
    What can only be checked elsewhere is listed.
    """
    for variable, level in _QUIET.items():
        os.environ.setdefault(variable, level)
    try:
        from verl_kernel.preflight.composing import compose_training
        from verl_kernel.preflight.hardware import described

        where = described(machine) if machine else None
        config = compose_training(config_name, overrides or [], config_dir)
        from verl_kernel.preflight import preflight

        notes = preflight(config, where)
    except VerlKernelError as exc:
        typer.echo(f"Error: {exc}", err=True)
        raise typer.Exit(1) from None
    for note in notes:
        typer.echo(f"not checked here: {note}")
    typer.echo(f"{config_name}: no objection{f' on {machine}, a machine that is only described' if machine else ''}")
