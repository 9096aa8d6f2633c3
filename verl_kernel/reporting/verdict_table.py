# SPDX-License-Identifier: Apache-2.0
"""Prints verdicts for `verl-kernel eval`: a row for each kernel, and below the table a line of remarks for each.

Remarks are never cut in a narrow terminal, because they hold the remedy, and names are folded.
Where kernels were compiled for a GPU of AMD, a line for each says what it uses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from verl_kernel.env import EvalResult, EvalStatus, SizeVerdict
from verl_kernel.reporting.compiled import resources

_COLUMNS = ("status", "speedup", "ms", "ref. ms", "time cov.", "kernels")
_NARROW, _FIRST = 80, 2
"""Width of a terminal below which only the first of the columns are shown: else the kernels' names would go first."""
_NAME = 12
"""Characters that a kernel's name has at least in a line."""
_LONGEST = 600
"""Characters of the remarks on a verdict."""
_MEANING = {
    "only_moves": "its kernels only copy what torch computes",
    "launch_raised": "a launch of a kernel raised, and torch did the work",
    "only_this_size": "wrong at a size that the task does not name",
}
"""Texts for the flags of an `ok` verdict."""


def print_verdicts(reference: str, results: Sequence[EvalResult], console: Console) -> None:
    """Print the table and the remarks on all results that have any."""
    console.print(_table(reference, results, is_narrow=console.width < _NARROW))
    for name, result in zip(_names(results), results, strict=True):
        for remark in (remarks(result), *_compiled(result)):
            if remark:
                console.print(Text.assemble((name, "bold"), f": {remark}"), soft_wrap=not console.is_terminal)


def remarks(result: EvalResult) -> str:
    """Return everything about a verdict except its figures."""
    text = "; ".join(_remarks(result))
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _compiled(result: EvalResult) -> list[str]:
    """Return what each compiled kernel uses, if some were compiled for a GPU of AMD, which has scalar registers."""
    kernels = result.compiled_kernels or ()
    if all(kernel.scalars is None for kernel in kernels):
        return []
    return [f"{kernel.name}, compiled for {kernel.target}: {resources(kernel)}" for kernel in kernels]


def _remarks(result: EvalResult) -> Iterator[str]:
    if result.error is not None:
        yield f"{result.error.type}: {' '.join(result.error.message.split())}".removesuffix(": ")
    if result.true_size is not None:
        yield f"no time: {result.true_size.unknown}" if result.true_size.unknown else "judged at reduced sizes"
    if result.unpriced_ops:
        yield f"no time: no price for {', '.join(result.unpriced_ops)} (docs/clock.md)"
    if reason := result.env.get("reference_not_compiled"):
        yield f"the reference could not be compiled: {reason}"
    if result.task_flags:
        yield f"task: {', '.join(result.task_flags)}" + " (never rewarded)" * ("constant_output" in result.task_flags)
    for flag in result.hack_flags:
        yield f"{flag} ({_MEANING[flag]})" if flag in _MEANING else flag
    if result.fallback_ops and result.error is None:
        yield "torch: " + ", ".join(f"{count} {name}" for name, count in result.fallback_ops.items())


def _table(reference: str, results: Sequence[EvalResult], *, is_narrow: bool) -> Table:
    sources = sorted({result.timing_source for result in results if result.timing_source})
    modes = sorted({result.reference_mode for result in results if result.reference_mode})
    over = f", speedup over {' and '.join(modes)}" if modes else ""
    title = f"{reference}, times: {', '.join(sources) or 'none'}{over}"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    shown = _FIRST if is_narrow else len(_COLUMNS)
    table.add_column("kernel", overflow="fold", min_width=_NAME)
    for name in _COLUMNS[:shown]:
        side: Literal["left", "right"] = "left" if name == "status" else "right"
        table.add_column(name, no_wrap=not is_narrow, overflow="fold" if is_narrow else "ellipsis", justify=side)
    for name, result in zip(_names(results), results, strict=True):
        table.add_row(name, *_cells(result)[:shown])
        for verdict in (*(result.sizes or ()), *(result.other_sizes or ())):
            table.add_row(f"  {verdict.name}", *_size_cells(verdict)[:shown])
    return table


def _names(results: Sequence[EvalResult]) -> list[str]:
    """Return the names of the files, with their folders where two are equal."""
    short = [Path(result.kernel).name for result in results]
    return short if len(set(short)) == len(short) else [result.kernel for result in results]


def _cells(result: EvalResult) -> tuple[Text | str, ...]:
    total = result.num_total_kernels
    return (
        Text(result.status.value, style=_style(result)),
        _speedup(result),
        "" if result.kernel_ms is None else f"{result.kernel_ms.median:.4f}",
        "" if result.reference_ms is None else f"{result.reference_ms.median:.4f}",
        "" if result.time_coverage is None else f"{result.time_coverage:.0%}",
        "" if total is None else f"{result.num_custom_kernels} of {total}",
    )


def _size_cells(verdict: SizeVerdict) -> tuple[str, ...]:
    """Return the cells of a size; how many kernels there are is said of the whole."""
    return (
        verdict.status.value,
        "" if verdict.speedup is None else f"{verdict.speedup:.2f}x",
        "" if verdict.kernel_ms is None else f"{verdict.kernel_ms:.4f}",
        "" if verdict.reference_ms is None else f"{verdict.reference_ms:.4f}",
        "" if verdict.time_coverage is None else f"{verdict.time_coverage:.0%}",
        "",
    )


def _style(result: EvalResult) -> str:
    if result.status is EvalStatus.OK:
        return "green" if result.rewarded else "yellow"
    return "magenta" if result.status is EvalStatus.INFRA_ERROR else "red"


def _speedup(result: EvalResult) -> str:
    """Return the speedup with its interval where it was predicted, with its lower bound where it was measured."""
    if result.speedup is None:
        return ""
    if result.speedup_interval is not None:
        low, high = result.speedup_interval
        return f"{result.speedup:.2f}x, {low:.1f} to {high:.1f}"
    noisy = result.speedup_low is not None and not result.is_simulated
    return f"{result.speedup:.2f}x" + (f" (>= {result.speedup_low:.2f}x)" if noisy else "")
