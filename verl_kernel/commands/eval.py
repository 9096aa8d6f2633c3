# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel eval`: judge kernel files against a reference file.

The exit code is 0 for any verdicts, or 1 for those that `--fail-on` names, 2 for a usage error, 3 if the evaluator
itself failed on a kernel, and 130 after Ctrl-C; then the verdicts reached so far are printed. Standard output holds
results only. A kernel file that is not text gets its own verdict, and the other files are judged.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated

import typer

from verl_kernel.commands import gym_options
from verl_kernel.commands.sentences import INFRA_ERROR, INTERRUPTED
from verl_kernel.data.source_files import NotText, read_source
from verl_kernel.env import EvalError, EvalResult, EvalStatus, GymOptions, Task
from verl_kernel.errors import ConfigError, EnvironmentNotReady, TaskError, VerlKernelError
from verl_kernel.option_group import nearest
from verl_kernel.reporting.screen import counted, screen, with_bar
from verl_kernel.reporting.verdict_table import print_verdicts

FAILED = 1
"""Exit code if a kernel is what `--fail-on` names."""
FAIL_ON: dict[str, Callable[[EvalResult], bool]] = {
    "never": lambda result: False,
    "wrong": lambda result: not result.rewarded,
    "slow": lambda result: not result.rewarded or _least_speedup(result) < 1.0,
}
"""The choices of `--fail-on`, with the results that each of them means."""


@gym_options.takes_gym(
    *("device", "address", "address_key", "baseline", "static_check", "tolerance", "float32", "trials", "gpu_profile"),
    *("compile_for", "memory_checks", "num_judges", "true_size", "other_sizes", "memory_mb", "timeout"),
)
def command(
    *,
    reference: Annotated[str, typer.Argument(metavar="REFERENCE.py", help="Program that defines the task.")],
    kernels: Annotated[list[str], typer.Argument(metavar="KERNEL.py...", help="Candidates to judge.")],
    json: Annotated[bool, typer.Option("--json", help="One EvalResult per line instead of a table.")] = False,
    seed: Annotated[int | None, typer.Option(help="Draw the same inputs in every run.")] = None,
    fail_on: Annotated[
        str, typer.Option(help="Exit with 1 if a kernel is: wrong (or refused), slow (or wrong, or not surely faster).")
    ] = "never",
    choose: Annotated[int, typer.Option(min=0, max=64, help="Name the kernel to keep, by this many more inputs.")] = 0,
    gym: GymOptions,
) -> None:
    """Judge kernels against a reference program."""
    if fail_on not in FAIL_ON:
        raise ConfigError(
            f"--fail-on is {fail_on!r}; {nearest(fail_on, FAIL_ON)}it must be one of {', '.join(FAIL_ON)}"
        )
    if gym.address is not None and (choose or seed is not None):
        name = "--choose" if choose else "--seed"
        raise ConfigError(f"{name} is given, but the service at {gym.address} draws the inputs: leave {name} out")
    if gym.address is not None and gym.other_sizes:
        raise ConfigError(
            f"--other-sizes is given, but the service at {gym.address} judges by its own options: leave it out, or "
            "start the service with --set other_sizes=true"
        )
    results: list[EvalResult] = []
    logging.getLogger("verl_kernel").addHandler(logging.NullHandler())  # the results or the error hold the messages
    with own_stdout() as out:
        keep_line = ""
        try:
            verdicts = _evaluate(reference, kernels, gym, seed)
            for result in with_bar(verdicts, "judging", len(kernels)):
                results.append(result)
                if json:
                    out.write(result.model_dump_json() + "\n")
                    out.flush()
            keep_line = _kernel_to_keep(reference, results, gym, choose, seed) if choose else ""
        except KeyboardInterrupt:
            _show(reference, results, out, json)
            typer.echo(f"Interrupted: {len(results)} of {counted(len(kernels), 'kernel')} judged.", err=True)
            raise typer.Exit(INTERRUPTED) from None
        except (TaskError, EnvironmentNotReady) as exc:
            raise type(exc)(about_reference(exc, reference)) from exc
        _show(reference, results, out, json)
        if keep_line:
            typer.echo(keep_line, file=sys.stderr if json else out)
    if any(result.status is EvalStatus.INFRA_ERROR for result in results):
        raise typer.Exit(INFRA_ERROR)
    if any(FAIL_ON[fail_on](result) for result in results):
        raise typer.Exit(FAILED)


def _show(reference: str, results: list[EvalResult], out: IO[str], json: bool) -> None:
    """Print the table, unless the results were already written as lines."""
    if results and not json:
        print_verdicts(reference, results, screen(out))


def about_reference(exc: VerlKernelError, reference: str) -> str:
    """Return what is wrong with a reference and the remedy, naming its file."""
    text = " ".join(str(exc).split()).replace(f"reference {Path(reference).stem} ", f"{reference} ", 1)
    if "not compiled with CUDA" in text or "Found no NVIDIA driver" in text:
        return f"{text} (it needs a GPU: judge it on a machine that has one)"
    if " raised " in text or "not valid Python" in text:
        return f"{text}: mend that file; a reference must run by itself"
    return text


def _evaluate(reference: str, kernels: list[str], options: GymOptions, seed: int | None) -> Iterator[EvalResult]:
    task = Task(read_source(reference), task_id=Path(reference).stem)
    _refuse_duplicates(kernels)
    jobs = [_job(task, kernel) for kernel in kernels]
    from verl_kernel.client import open_gym  # torch, which a usage error need not wait for

    with open_gym(options, seed) as pool:
        for start in range(0, len(jobs), options.num_judges):
            part = jobs[start : start + options.num_judges]
            judged = iter(pool.evaluate_many([job for job in part if not isinstance(job, EvalResult)]))
            for job in part:
                yield job if isinstance(job, EvalResult) else next(judged)


def _kernel_to_keep(
    reference: str, results: list[EvalResult], options: GymOptions, inputs: int, seed: int | None
) -> str:
    """Return which kernel to keep, in a sentence."""
    from verl_kernel.commands.kernel_choice import choose_kernel

    task = Task(read_source(reference))
    jobs = [_job(task, result.kernel) for result in results]
    sources = ["" if isinstance(job, EvalResult) else job[1] for job in jobs]
    choice = choose_kernel(task, sources, results, options, inputs=inputs, seed=seed)
    if choice is None:
        return "keep: none, no kernel is rewarded"
    return f"keep: {results[choice.kernel].kernel} (right on {choice.passed} of {choice.inputs} further inputs)"


def _job(task: Task, kernel: str) -> tuple[Task, str, str] | EvalResult:
    """Return a job for the pool, or the verdict on a file that Python could not even read."""
    try:
        return task, read_source(kernel), kernel
    except NotText as exc:
        error = EvalError(stage="load", type="SyntaxError", message=str(exc))
        return EvalResult(
            task_id=task.task_id,
            task_hash=task.text_hash,
            kernel=kernel,
            status=EvalStatus.LOAD_ERROR,
            compiled=False,
            correctness=False,
            error=error,
        )


def _refuse_duplicates(kernels: list[str]) -> None:
    paths: set[str] = set()
    for kernel in kernels:
        path = os.path.realpath(kernel)
        if path in paths:
            raise ConfigError(f"{kernel} is named twice: name each kernel once")
        paths.add(path)


@contextmanager
def own_stdout() -> Iterator[IO[str]]:
    """Yield standard output for results only; everything else that this process prints goes to standard error."""
    sys.stdout.flush()
    with os.fdopen(os.dup(1), "w", encoding="utf-8", errors="backslashreplace") as out:
        os.dup2(2, 1)
        try:
            yield out
        finally:
            sys.stdout.flush()
            out.flush()
            os.dup2(out.fileno(), 1)


def _least_speedup(result: EvalResult) -> float:
    """Return the lower end of the interval that the table shows."""
    return (result.speedup_interval or (result.sure_speedup,))[0] or 0.0
