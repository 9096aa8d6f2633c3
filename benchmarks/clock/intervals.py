# SPDX-License-Identifier: Apache-2.0
"""How often stated intervals hold the published times, and the half-widths that level 1 gives them."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import ceil, log

from rich.table import Table

from benchmarks.clock.references import Prediction
from verl_kernel.env.machine.machine import MachineModel
from verl_kernel.env.machine.uncertainty import COVERED, HALF_WIDTHS, interval_ms, time_by_class

BAR = (0.85, 0.95)
"""Shares of published times between which the stated intervals have to hold them."""


def quantile(errors: Sequence[float]) -> float | None:
    """The smallest bound that a further error exceeds with a probability of 1 - COVERED at most; None if too few."""
    rank = ceil(COVERED * (len(errors) + 1))
    return sorted(errors)[rank - 1] if rank <= len(errors) else None


def half_widths(found: Iterable[Prediction], machine: MachineModel) -> dict[str, tuple[int, float]]:
    """By class its programs and its half-width, as `machine.uncertainty` defines them."""
    errors: defaultdict[str, list[float]] = defaultdict(list)
    for one in found:
        shares = time_by_class(one.events, machine, one.blocks_per_sm)
        errors[max(shares, key=shares.__getitem__)].append(abs(log(one.theirs / one.ours)))
    everything = [error for some in errors.values() for error in some]
    pooled = quantile(everything) or max(everything)
    return {name: (len(some), quantile(some) or max(pooled, *some)) for name, some in errors.items()}


def coverage(found: Sequence[Prediction], machine: MachineModel, stated: Mapping[str, float] = HALF_WIDTHS) -> Table:
    """How many published times of each level the stated intervals hold."""
    table = Table("level", "programs", "held by 90 % intervals", "median half-width", "bar", title="stated intervals")
    for level in sorted({one.program.level for one in found}):
        some = [one for one in found if one.program.level == level]
        ends = [interval_ms(one.events, machine, one.blocks_per_sm, stated) for one in some]
        share = sum(low <= one.theirs <= high for one, (low, high) in zip(some, ends, strict=True)) / len(some)
        width = statistics.median(log(high / low) / 2 for low, high in ends)
        verdict = "met" if BAR[0] <= share <= BAR[1] else "missed"
        table.add_row(level, str(len(some)), f"{share:.1%}", f"{width:.2f}", verdict)
    return table


def widths(found: Sequence[Prediction], machine: MachineModel, stated: Mapping[str, float] = HALF_WIDTHS) -> Table:
    """Half-widths by class: computed from level 1, and stated."""
    table = Table("class", "programs of level 1", "computed", "stated", title="half-widths of ln(time)")
    computed = half_widths([one for one in found if one.program.level == "level1"], machine)
    for name, half in stated.items():
        if name.startswith("launch: "):  # of other people's kernels: bench_candidates.py
            continue
        count, width = computed.get(name, (0, None))
        table.add_row(name, str(count), "" if width is None else f"{width:.3f}", f"{half:.2f}")
    return table
