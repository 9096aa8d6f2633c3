# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel eval`: judge kernel files against a reference file.

Exit code 0 whatever the verdicts, 2 for a usage error, 3 if the evaluator itself failed on a kernel. Results are the
only thing on standard output.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated

import typer
from rich.console import Console
from rich.table import Table

from verl_kernel.env.options import GymOptions
from verl_kernel.env.result import EvalResult, EvalStatus
from verl_kernel.env.task import Task
from verl_kernel.errors import ConfigError, DataError, VerlKernelError

USAGE_ERROR, INFRA_ERROR = 2, 3
_COLUMNS = ("kernel", "status", "correct", "speedup", "ms", "reference ms", "time cov.", "kernels", "remark")


def command(
    reference: Annotated[str, typer.Argument(metavar="REFERENCE.py", help="Program that defines the task.")],
    kernels: Annotated[list[str], typer.Argument(metavar="KERNEL.py...", help="Candidates to judge.")],
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    json: Annotated[bool, typer.Option("--json", help="One EvalResult per line instead of a table.")] = False,
    seed: Annotated[int | None, typer.Option(help="Draw the same inputs in every run.")] = None,
) -> None:
    """Judge kernels against a reference program."""
    results: list[EvalResult] = []
    with _own_stdout() as out:
        try:
            for result in _evaluate(reference, kernels, device, seed):
                results.append(result)
                if json:
                    out.write(result.model_dump_json() + "\n")
                    out.flush()
        except VerlKernelError as exc:
            typer.echo(f"Error: {exc}", err=True)
            raise typer.Exit(USAGE_ERROR) from None
        if not json:
            _print_table(reference, results, out)
    if any(result.status is EvalStatus.INFRA_ERROR for result in results):
        raise typer.Exit(INFRA_ERROR)


def _evaluate(reference: str, kernels: list[str], device: str, seed: int | None) -> Iterator[EvalResult]:
    if device not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"--device is {device!r}; it must be one of auto, cpu, cuda")
    task = Task(_read(reference), task_id=Path(reference).stem)
    jobs = [(task, _read(kernel), kernel) for kernel in kernels]
    from verl_kernel.env.pool import LocalPool  # torch, which a usage error need not wait for

    with LocalPool(GymOptions(device=device), seed) as pool:
        for job in jobs:
            yield from pool.evaluate_many([job])


def _read(name: str) -> str:
    """Text of a source file; raises DataError with one sentence for anything else."""
    path = Path(name)
    if path.is_dir():
        raise DataError(f"{name} is a directory: name a Python file")
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise DataError(f"{name} does not exist: name a Python file") from None
    except OSError as exc:
        raise DataError(f"{name} cannot be read ({exc.strerror}): check the file and its permissions") from exc
    except UnicodeDecodeError as exc:
        raise DataError(f"{name} is not UTF-8 text (byte {exc.start}): save it as UTF-8 Python source") from exc
    if "\0" in text:
        raise DataError(f"{name} is a binary file: name a Python source file")
    return text


@contextmanager
def _own_stdout() -> Iterator[IO[str]]:
    """Standard output for the results alone: whatever else this process prints goes to standard error."""
    sys.stdout.flush()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)
        try:
            yield out
        finally:
            out.flush()
            os.dup2(out.fileno(), 1)


def _print_table(reference: str, results: list[EvalResult], out: IO[str]) -> None:
    sources = sorted({result.timing_source for result in results if result.timing_source})
    table = Table(*_COLUMNS, title=f"{reference} (times: {', '.join(sources) or 'none'})")
    for result in results:
        table.add_row(*_cells(result))
    Console(file=out, width=None if out.isatty() else 160).print(table)


def _cells(result: EvalResult) -> tuple[str, ...]:
    total = result.num_total_kernels
    return (
        result.kernel,
        result.status.value,
        "" if result.correctness is None else "yes" if result.correctness else "no",
        "" if result.speedup is None else f"{result.speedup:.2f}x",
        "" if result.kernel_ms is None else f"{result.kernel_ms.median:.4f}",
        "" if result.reference_ms is None else f"{result.reference_ms.median:.4f}",
        "" if result.time_coverage is None else f"{result.time_coverage:.0%}",
        "" if total is None else f"{result.num_custom_kernels} of {total}",
        _remark(result),
    )


def _remark(result: EvalResult) -> str:
    if result.error is not None:
        return f"{result.error.type}: {result.error.message}".strip().splitlines()[0][:120]
    if result.fallback_ops:
        return "torch: " + ", ".join(f"{count} {name}" for name, count in result.fallback_ops.items())
    return ", ".join(result.hack_flags)
