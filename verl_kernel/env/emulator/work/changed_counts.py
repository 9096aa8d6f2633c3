# SPDX-License-Identifier: Apache-2.0
"""Answers what a launch would have done with other accesses or other units, by counts changed in one respect.

The changed counts become steps in the same way as the launch's own (`steps.launch_work`), so the clock prices both
alike. A profile compares the prices; no time of a result is computed from changed counts.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Literal

import numpy as np

from verl_kernel.env.emulator.counts import LaunchCount, SiteCount
from verl_kernel.env.emulator.lowering.writer import LANES
from verl_kernel.env.emulator.ptx.program import Instruction, PtxProgram, SourceLine
from verl_kernel.env.emulator.reuse_distance import Use
from verl_kernel.env.emulator.work import costs
from verl_kernel.env.emulator.work.steps import passes
from verl_kernel.env.emulator.work.vectors import with_uses
from verl_kernel.env.gpus import GPUS

_SECTOR = 32
Kind = Literal["load", "store", "atomic"]
# What is not here is an atomic.
_KINDS: dict[str, Kind] = {"ld": "load", "cp": "load", "st": "store"}


@dataclass(frozen=True)
class Accesses:
    """What the instructions of one source line request from one buffer."""

    place: SourceLine | None
    """Place in the source; None if the PTX names none."""
    kind: Kind
    row: int
    """Number of the buffer in the launch."""
    asked: int
    """Bytes that lanes access."""
    sectors: int
    """Sectors of 32 bytes that this takes, counted by warp."""
    needed: int
    """Sectors that it would take if the lanes of each warp accessed consecutive elements."""


def accesses(count: LaunchCount) -> list[Accesses]:
    """Return the accesses to global memory by line, kind and buffer, in the order of the program."""
    by_line: dict[tuple[SourceLine | None, Kind, int], list[tuple[int, int, int]]] = defaultdict(list)
    for site, needed in zip(count.sites, _needed(count), strict=True):
        if site.accesses and site.site.kind.startswith("global"):
            key = (site.site.item.source_line, _KINDS.get(site.site.item.root, "atomic"), site.row)
            by_line[key].append((site.accesses * site.site.bytes, site.sectors, needed))
    return [Accesses(*key, *(sum(part) for part in zip(*parts, strict=True))) for key, parts in by_line.items()]


def _needed(count: LaunchCount) -> list[int]:
    """Return for each site the least sectors of its accesses: those of their bytes, and one for each request."""
    # Instructions are compared by identity: equal ones occur in several blocks.
    blocks = {
        id(item): number
        for number, (start, end) in enumerate(count.module.blocks)
        for item in count.program.instructions[start:end]
    }
    entered = [int(count.warps_entered[blocks[id(site.site.item)]]) for site in count.sites]
    return [
        # A warp's request takes at least a sector, and a launch cannot need more than it took.
        min(site.sectors, max(ceil(site.accesses * site.site.bytes / _SECTOR), min(warps, site.accesses)))
        for site, warps in zip(count.sites, entered, strict=True)
    ]


def coalesced(count: LaunchCount) -> LaunchCount:
    """Return the count of a launch in which the lanes of each warp access consecutive elements."""
    changed = [
        replace(site, sectors=needed, missed=min(site.missed, needed)) if _is_plain(site) else site
        for site, needed in zip(count.sites, _needed(count), strict=True)
    ]
    reads, writes = (
        [_scaled(use, *_requested(count.sites, changed, row, is_load)) for row, use in enumerate(uses)]
        for uses, is_load in ((count.reads, True), (count.writes, False))
    )
    return with_uses(replace(count, sites=changed), reads, writes)


def _is_plain(site: SiteCount) -> bool:
    return site.site.kind.startswith("global") and site.site.item.root in _KINDS


def _requested(before: Sequence[SiteCount], after: Sequence[SiteCount], row: int, is_load: bool) -> tuple[int, int]:
    """Return the sectors requested from the second level for a buffer, before and after a change."""
    pairs = [
        (old.missed, new.missed)
        for old, new in zip(before, after, strict=True)
        if old.row == row and _is_plain(old) and (_KINDS[old.site.item.root] == "load") is is_load
    ]
    return sum(old for old, _ in pairs), sum(new for _, new in pairs)


def _scaled(use: Use, before: int, after: int) -> Use:
    # Nothing reached the second level: nothing can change there.
    if not before:
        return use
    return replace(use, total=round(use.total * after / before), own=round(use.own * after / before))


def read_once(count: LaunchCount, row: int) -> LaunchCount:
    """Return the count of a launch that reads and writes a buffer once: one that blocks share, once on each SM.

    The loads that are left request as much at a time as before.
    """
    reads, writes = ([*uses] for uses in (count.reads, count.writes))
    reads[row], writes[row] = _once(reads[row]), _once(writes[row])
    return with_uses(count, reads, writes)


def _once(use: Use) -> Use:
    # An SM's first level cannot give a block what another SM has read.
    read_once_bytes = min(use.own, use.once * GPUS["h100"].sms) if use.is_shared else use.once
    return replace(use, total=min(use.total, read_once_bytes), own=min(use.own, read_once_bytes))


# Multiplications and additions of a launch that multiplies matrices without tensor cores.
#
# On tensor cores such a launch would need none of them, nor the loads of their factors from shared memory and other
# lanes: Hopper's products read shared memory by themselves.


_MULTIPLIES = frozenset({"fma", "mad", "mul", "add"})
"""Opcodes of a product of matrices without tensor cores."""
_TABLES: weakref.WeakKeyDictionary[PtxProgram, tuple[np.ndarray, np.ndarray]] = weakref.WeakKeyDictionary()
"""What `_table` returned for each program."""


@dataclass(frozen=True)
class Multiplied:
    """Multiplications and additions outside of tensor cores."""

    flops: int
    """Their operations; a multiplication with an addition counts as two."""
    rest: int
    """Time of the busiest unit without them, in instructions of single threads."""


def multiplied(count: LaunchCount) -> Multiplied:
    """Return the launch's multiplications and additions of floating-point numbers, and what else it executes."""
    if count.program not in _TABLES:
        _TABLES[count.program] = _table(count)
    flops, units = _TABLES[count.program]
    busy = count.warps_entered.astype(np.float64) * LANES @ units
    # Accesses to global memory remain without tensor cores; those to shared memory fetch factors.
    outside = (site for site in count.sites if site.site.kind.startswith("global"))
    busy[costs.SHARED] += sum(map(passes, outside)) * LANES * costs.PER_SHARED
    return Multiplied(int(count.lanes @ flops), round(float(busy.max())))


def _table(count: LaunchCount) -> tuple[np.ndarray, np.ndarray]:
    """Return for each block of instructions the operations of a lane, and by unit what else a lane costs."""
    cost_of: dict[str, costs.Cost] = {}
    flops, units = np.zeros(len(count.module.blocks), np.int64), np.zeros((len(count.module.blocks), costs.UNIT_COUNT))
    for number, (start, end) in enumerate(count.module.blocks):
        for item in count.program.instructions[start:end]:
            cost = cost_of.get(item.opcode) or cost_of.setdefault(item.opcode, costs.cost(item))
            if cost.flops and item.root in _MULTIPLIES and not item.opcode.endswith("f64"):
                flops[number] += cost.flops
            elif not _fetches_factors(item):
                units[number] += cost.units
    return flops, units


def _fetches_factors(item: Instruction) -> bool:
    """Whether an instruction brings factors from shared memory or from other lanes."""
    return item.root in ("shfl", "ldmatrix") or (item.root == "ld" and "shared" in item.modifiers)
