# SPDX-License-Identifier: Apache-2.0
"""Tables of predicted times beside measured ones."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from math import exp, isnan, log

from rich import box
from rich.table import Table

from verl_kernel.bench.measured import ClockFigures, ComparedKernel
from verl_kernel.figures.agreement import FACTORS, factor


def agreement_table(title: str, groups: Mapping[str, Sequence[ComparedKernel]]) -> Table:
    """Return a row of figures for each group of kernels.

    `ratio` is the geometric mean of predicted over measured times, `1.25x` and the like the share of kernels whose
    ratio lies within that factor, `held` the share whose interval holds the measured time. `in order` counts the pairs
    of kernels of one task whose predictions differ as their times do, and `regret` is how much longer than the fastest
    the one takes that is predicted to be fastest.
    """
    shares = [f"{limit:g}x" for limit in FACTORS]
    columns = ("kernels", "ratio", "Spearman", *shares, "held", "in order", "regret")
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("")
    for name in columns:
        table.add_column(name, no_wrap=True, justify="right")
    for name, kernels in groups.items():
        if kernels:
            table.add_row(name, *_cells(ClockFigures.of(kernels)))
    return table


def _cells(figures: ClockFigures) -> tuple[str, ...]:
    agreement, order = figures.agreement, figures.order
    regret = exp(statistics.fmean(map(log, order.regrets))) if order.regrets else None
    return (
        str(agreement.count),
        f"{agreement.mean_ratio:.2f}",
        "" if isnan(agreement.spearman) else f"{agreement.spearman:.3f}",
        *(f"{share:.0%}" for share in agreement.within),
        f"{figures.coverage:.0%}",
        f"{order.in_order} of {order.pairs}" if order.pairs else "",
        "" if regret is None else f"{regret:.2f}x",
    )


def kernel_table(kernels: Sequence[ComparedKernel], limit: int | None = None) -> Table:
    """Return a row for each kernel, those furthest off first."""
    title = "furthest off first" if limit is None or len(kernels) <= limit else f"the {limit} furthest off"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for name in ("task", "kernel", "bound by"):
        table.add_column(name)
    for name in ("predicted ms", "measured ms", "ratio"):
        table.add_column(name, no_wrap=True, justify="right")
    ordered = sorted(kernels, key=lambda kernel: -factor(kernel.predicted_ms, kernel.measured_ms))
    for kernel in ordered[:limit]:
        ratio = kernel.predicted_ms / kernel.measured_ms
        times = (f"{kernel.predicted_ms:.4g}", f"{kernel.measured_ms:.4g}", f"{ratio:.2f}")
        table.add_row(kernel.task, kernel.name, kernel.bound, *times)
    return table
