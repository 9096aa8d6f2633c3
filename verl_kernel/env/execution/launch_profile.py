# SPDX-License-Identifier: Apache-2.0
"""Explains a launch for a profile: accesses by source line, busy units, and its steps with one count changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from verl_kernel.env.emulator.counts import LaunchCount
from verl_kernel.env.emulator.work import costs
from verl_kernel.env.emulator.work.changed_counts import accesses, coalesced, multiplied, read_once
from verl_kernel.env.emulator.work.steps import KernelFacts, busy_units, facts_of, launch_work
from verl_kernel.env.ipc.execution_messages import BUSY_UNITS, Explained, Line

_MATERIAL = 0.05
"""Share of a launch's traffic below which a change of it is not worth a price."""
SourceLine = tuple[str, int] | None
"""File and line; None if they are not known."""


def explained(count: LaunchCount, names: Mapping[str, int], own_line: Callable[[SourceLine], int | None]) -> Explained:
    """Explain a launch.

    Args:
        count: what it did.
        names: by argument, the number of the area that holds its tensor.
        own_line: returns the line of the candidate's file; None for a line of another file.
    """
    facts = facts_of(count.program, count.module)
    busy = busy_units(count, facts)
    return Explained(
        names=dict(names),
        lines=_lines(count, own_line),
        busy={unit: round(float(busy[index])) for unit, index in zip(BUSY_UNITS, range(costs.UNIT_COUNT), strict=True)},
        multiplied=_multiplied(count, facts),
        coalesced=_coalesced(count),
        unspilled=_steps(count, replace(facts, spills=0)) if facts.spills else [],
        once={name: _steps(read_once(count, row)) for name, row in names.items() if _is_repeated(count, row)},
    )


def _multiplied(count: LaunchCount, facts: KernelFacts) -> list[int]:
    """Return `Explained.multiplied`; [0, 0] for a launch that computes less than it moves."""
    # A launch that computes less than it moves is bound by memory: its products are no reason for its time.
    if int(count.lanes @ facts.flops) < sum(use.total for use in (*count.reads, *count.writes)):
        return [0, 0]
    products = multiplied(count)
    return [products.flops, products.rest]


def _lines(count: LaunchCount, own_line: Callable[[SourceLine], int | None]) -> list[Line]:
    files = count.program.files
    return [
        Line(
            line=own_line((files.get(access.place.file, "?"), access.place.line) if access.place else None),
            kind=access.kind,
            area=access.row,
            asked=access.asked,
            sectors=access.sectors,
            needed=access.needed,
        )
        for access in accesses(count)
    ]


def _coalesced(count: LaunchCount) -> list[dict[str, Any]]:
    global_accesses = accesses(count)
    wasted = sum(access.sectors - access.needed for access in global_accesses)
    return _steps(coalesced(count)) if wasted > _MATERIAL * sum(access.sectors for access in global_accesses) else []


def _is_repeated(count: LaunchCount, row: int) -> bool:
    """Whether a launch moves much of a buffer several times."""
    total = sum(use.total for use in (*count.reads, *count.writes))
    repeated_bytes = sum(uses[row].total - uses[row].once for uses in (count.reads, count.writes))
    return repeated_bytes > _MATERIAL * total


def _steps(count: LaunchCount, facts: KernelFacts | None = None) -> list[dict[str, Any]]:
    return [step.to_json() for step in launch_work(count, facts).steps]
