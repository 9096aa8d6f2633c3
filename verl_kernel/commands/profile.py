# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel profile`: say what bounds each kernel of a file, and which single change would save most time.

Figures are predicted; on a machine with a GPU the measured times stand beside them. The exit code is 2 if the program
was not timed, or launched nothing of its own, and 3 if the evaluator itself failed.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from verl_kernel.commands import gym_options
from verl_kernel.commands.eval import about_reference, own_stdout
from verl_kernel.data.files import check_file
from verl_kernel.data.source_files import read_source
from verl_kernel.env import EvalResult, EvalStatus, GymOptions, Task
from verl_kernel.errors import DataError, EnvironmentNotReady, InfraError, TaskError


@gym_options.takes_gym(*("device", "float32", "trials", "gpu_profile", "compile_for", "true_size", "timeout"))
def command(
    *,
    reference: Annotated[str, typer.Argument(metavar="REFERENCE.py", help="Program that defines the task.")],
    kernel: Annotated[str, typer.Argument(metavar="KERNEL.py", help="Candidate to profile.")],
    page: Annotated[Path | None, typer.Option(help="Write the long form there, an HTML page.")] = None,
    json: Annotated[bool, typer.Option("--json", help="The EvalResult with its profile instead of lines.")] = False,
    seed: Annotated[int | None, typer.Option(help="Draw the same inputs in every run.")] = None,
    gym: GymOptions,
) -> None:
    """Say what bounds each kernel, and which change would save most."""
    if page is not None:
        check_file(page, "--page")
    logging.getLogger("verl_kernel").addHandler(logging.NullHandler())  # the lines or the error hold the messages
    with own_stdout() as out:
        try:
            task, source = Task(read_source(reference), task_id=Path(reference).stem), read_source(kernel)
            result = _judged(task, source, kernel, gym, seed)
        except (TaskError, EnvironmentNotReady) as exc:
            raise type(exc)(about_reference(exc, reference)) from exc
        _refuse(result, kernel)
        written = [] if page is None else [f"page: {_write(page, result, source)}"]
        lines = [result.model_dump_json()] if json else [*_lines(result), *written]
        out.write("\n".join(lines) + "\n")


def _judged(task: Task, source: str, kernel: str, options: GymOptions, seed: int | None) -> EvalResult:
    """Judge the candidate; on a GPU a worker without one makes the profile first."""
    from verl_kernel.env import LocalPool, resolve_device  # torch, which a usage error need not wait for

    if resolve_device(options.device).is_counted:
        options = replace(options, device="cpu")
    else:
        options = replace(options, device="cuda", prefilter="cpu", prefilter_judges=1)
    with LocalPool(options, seed) as pool:
        return pool.evaluate_many([(task, source, kernel)])[0]


def _refuse(result: EvalResult, kernel: str) -> None:
    """Raise the reason why there is nothing to show."""
    from verl_kernel.figures.profile_lines import missing_profile

    if result.status is EvalStatus.INFRA_ERROR:
        raise InfraError(f"{kernel} was not judged: {result.error.message if result.error else 'the evaluator failed'}")
    if result.profile is None:
        why = "" if result.error is None else f": {result.error.message}"
        raise DataError(
            f"{kernel} has no profile, {missing_profile(result)}{why}: name a program that `verl-kernel eval` calls ok"
        )


def _lines(result: EvalResult) -> list[str]:
    from verl_kernel.figures.profile_lines import result_lines

    return result_lines(result)


def _write(page: Path, result: EvalResult, source: str) -> Path:
    from verl_kernel.data.files import writing
    from verl_kernel.reporting.profile_page import write_profile_page

    with writing(page, "--page") as part:
        write_profile_page(part, result, source)
    return page
