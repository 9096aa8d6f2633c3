# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel clock validate`: compare the simulated clock with times that a GPU measured.

The exit code is 2 if no kernel has a predicted time, and 3 if the evaluator itself failed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from verl_kernel.bench.clock_table import agreement_table, kernel_table
from verl_kernel.bench.measured import ComparedKernel, MeasuredKernel, by_bound, judged, read_measured
from verl_kernel.commands import gym_options
from verl_kernel.commands.eval import own_stdout
from verl_kernel.env import GymOptions
from verl_kernel.errors import DataError
from verl_kernel.reporting.screen import screen, with_bar

app = typer.Typer(add_completion=False, no_args_is_help=True)


@app.callback()
def clock() -> None:
    """Compare the simulated clock with a GPU's."""


@app.command()
@gym_options.takes_gym("gpu_profile", "compile_for", "float32", "true_size", "num_judges", "timeout")
def validate(
    *,
    data: Annotated[
        Path,
        typer.Argument(
            help="Folder with reference.py, kernels and measured.json (milliseconds by file name), folder of such "
            "folders, or parquet file with the columns reference, kernel and milliseconds."
        ),
    ],
    worst: Annotated[int, typer.Option(min=0, help="Kernels to list, those furthest off first.")] = 10,
    gym: GymOptions,
) -> None:
    """Predict the times of kernels that a GPU has measured, and say how far off the predictions are."""
    gym = replace(gym, device="cpu", correctness_trials=1)
    kernels = read_measured(data)
    logging.getLogger("verl_kernel").addHandler(logging.NullHandler())  # the lines hold the messages
    with own_stdout() as out:
        console = screen(out)
        rows: list[ComparedKernel] = []
        try:
            for kernel, row in zip(kernels, with_bar(_compared(kernels, gym), "judging", len(kernels)), strict=True):
                if isinstance(row, str):
                    console.print(f"{kernel.task.task_id}, {kernel.name}: {row}", soft_wrap=True, markup=False)
                else:
                    rows.append(row)
        finally:  # what was judged before a failure of the gym, or Ctrl-C, is shown
            if rows:
                groups = {"all": rows, **by_bound(rows)}
                console.print(agreement_table(f"{gym.gpu_profile}: predicted over measured", groups))
                console.print(kernel_table(rows, worst))
        if not rows:
            raise DataError(f"no kernel of {data} has a predicted time: the lines above say why")


def _compared(kernels: Sequence[MeasuredKernel], options: GymOptions) -> Iterator[ComparedKernel | str]:
    from verl_kernel.env import LocalPool  # torch, which a usage error need not wait for

    with LocalPool(options, seed=0) as pool:
        yield from judged(pool, kernels, options.num_judges)
