# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel data`: make datasets and the small model of the CPU recipe."""

from __future__ import annotations

import typer

from verl_kernel.commands.data import audit, coldstart, quickstart, sources, split, temperatures

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Build tasks, data sets and the quickstart's model.")


@app.callback()
def _group() -> None:
    """Build tasks, data sets and the quickstart's model."""


app.command("quickstart")(quickstart.command)
app.command("rows")(sources.rows)
app.command("talks")(sources.talks)
app.command("split")(split.command)
app.command("temperatures")(temperatures.command)
app.command("audit")(audit.command)
app.command("coldstart")(coldstart.command)
