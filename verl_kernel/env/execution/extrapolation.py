# SPDX-License-Identifier: Apache-2.0
"""What a launch would have counted, from the counts of some of its programs and how many each of them stands for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from verl_kernel.env.executor.counts import LaunchCount, SiteCount
from verl_kernel.env.executor.use import Use

Weighted = tuple[float, LaunchCount]
"""How many programs one that ran stands for, and what it did."""


def extrapolated(shape: tuple[int, int, int], runs: Sequence[Weighted]) -> LaunchCount:
    """The count of a whole launch.

    Sums are weighted. Where a buffer's accesses begin and end is what was seen of it.

    Args:
        shape: of the grid.
        runs: some programs, at least one.
    """
    first = runs[0][1]
    return LaunchCount(
        first.program, first.module, shape, first.warps, first.shared_bytes,
        lanes=_array([(weight, count.lanes) for weight, count in runs]),
        warps_entered=_array([(weight, count.warps_entered) for weight, count in runs]),
        sites=[_site([(weight, count.sites[number]) for weight, count in runs]) for number in range(len(first.sites))],
        reads=[_use([(weight, count.reads[number]) for weight, count in runs]) for number in range(len(first.reads))],
        writes=[
            _use([(weight, count.writes[number]) for weight, count in runs]) for number in range(len(first.writes))
        ],
        rereads=(),  # `windows` finds these
        heaviest_bytes=max(count.heaviest_bytes for _, count in runs),
        heaviest_work=max(count.heaviest_work for _, count in runs),
        voids=tuple(_array([(weight, np.array(count.voids)) for weight, count in runs]).tolist()),
    )  # fmt: skip


def _array(parts: Sequence[tuple[float, np.ndarray]]) -> np.ndarray:
    total = np.zeros(len(parts[0][1]), np.float64)
    for weight, values in parts:
        total += weight * values
    return np.rint(total).astype(np.int64)


def _site(parts: Sequence[tuple[float, SiteCount]]) -> SiteCount:
    def total(name: str) -> int:
        return round(sum(weight * int(getattr(count, name)) for weight, count in parts))

    return SiteCount(parts[0][1].site, *(total(name) for name in ("accesses", "sectors", "unwritten", "missed")))


def _use(parts: Sequence[tuple[float, Use]]) -> Use:
    seen = [(weight, use) for weight, use in parts if use.total]
    if not seen:
        return Use()
    return Use(
        total=round(sum(weight * use.total for weight, use in seen)),
        own=round(sum(weight * use.own for weight, use in seen)),
        low=min(use.low for _, use in seen),
        high=max(use.high for _, use in seen),
    )
