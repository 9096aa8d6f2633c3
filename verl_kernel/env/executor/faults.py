# SPDX-License-Identifier: Apache-2.0
"""Faults of native code, in sentences."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from verl_kernel.env.executor.counts import SiteCount
from verl_kernel.env.executor.errors import Fault
from verl_kernel.env.executor.library import context
from verl_kernel.env.executor.lowering.sites import Site
from verl_kernel.env.executor.ptx.program import Program

FAULTS = {
    context.OUT_OF_BOUNDS: "out_of_bounds", context.MISALIGNED: "misaligned", context.OUT_OF_SHARED: "out_of_shared",
    context.OUT_OF_LOCAL: "out_of_local", context.DIVERGENT: "divergent", context.OUT_OF_FUEL: "endless",
    context.STOPPED: "stopped", context.RACE: "race",
}  # fmt: skip
_SENTENCES = {
    "out_of_bounds": "lies outside of the launch's tensors",
    "misaligned": "accesses address {place:#x}, which is no multiple of its {bytes} bytes",
    "out_of_shared": "accesses byte {place} of shared memory, which ends before it",
    "out_of_local": "accesses byte {place} of a lane's local memory, which ends before it",
    "divergent": "needs all lanes of a warp, and some are elsewhere",
    "endless": "ran for longer than the launch may",
    "stopped": "stopped by itself (`trap`, or an assertion)",
    "race": "accesses {where}, {met}",
}
_ACCESSES = {"ld": "a load", "st": "a store", "cp": "a copy", "red": "an atomic", "atom": "an atomic"}


def line_of(program: Program, site: Site) -> tuple[str, int] | None:
    """File and line of the source, where the PTX names one."""
    place = site.item.place
    return (program.files.get(place.file, "?"), place.line) if place else None


def fault_of(words: np.ndarray, program: Program, site: Site, met: str) -> Fault:
    """The fault that native code has noted.

    Args:
        words: that it was noted in.
        program: the kernel.
        site: where it happened.
        met: what a race was with.
    """
    kind = FAULTS[int(words[context.KIND])]
    address = int(words[context.PLACE]) & (1 << 64) - 1
    where = f"byte {address} of shared memory" if site.kind.startswith("shared") else f"address {address:#x}"
    sentence = _SENTENCES[kind].format(place=address, bytes=site.bytes, where=where, met=met)
    block, warp, lane = (int(words[word]) for word in (context.BLOCK, context.WARP, context.LANE))
    quoted = f"`{site.item.text}`"
    what = _ACCESSES.get(site.item.root, quoted) if kind == "out_of_bounds" else quoted
    message = f"{what} {sentence} (block {block}, warp {warp}, lane {lane})"
    return Fault(kind, message, line_of(program, site), address)


def unwritten(program: Program, counts: Iterable[SiteCount]) -> list[str]:
    """A sentence for each instruction that read bytes nobody had written."""
    return [_unwritten(program, count) for count in counts if count.unwritten]


def _unwritten(program: Program, count: SiteCount) -> str:
    line = line_of(program, count.site)
    place = f" ({line[0]}, line {line[1]})" if line else ""
    return f"`{count.site.item.text}` reads bytes that nobody has written in {count.unwritten} lanes{place}"
