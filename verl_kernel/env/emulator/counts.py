# SPDX-License-Identifier: Apache-2.0
"""Counts what a launch did, from the words that native code wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from verl_kernel.env.emulator.library import traffic
from verl_kernel.env.emulator.lowering import sites
from verl_kernel.env.emulator.lowering.function import Module
from verl_kernel.env.emulator.lowering.writer import LANES
from verl_kernel.env.emulator.ptx.program import PtxProgram
from verl_kernel.env.emulator.reuse_distance import Rereads, Use

_WARP_LINES = 32
"""Lines of the first-level cache for each warp: 1/64 of 256 kB, the share of a warp on an H100's SM full of warps."""
_LEAST_LINES = 16
"""The least number of lines for each warp, even if shared memory takes most of the 256 kB: fewer blocks fit then."""


@dataclass(frozen=True)
class SiteCount:
    """What one instruction that accesses memory did."""

    site: sites.Site
    accesses: int
    """Accesses by single lanes."""
    sectors: int
    """Sectors of 32 bytes, counted by warp; for shared memory, passes over its banks, extrapolated from a sample."""
    unwritten: int
    """Lanes that read bytes that were never written."""
    missed: int = 0
    """How many of these sectors were requested from the second-level cache."""
    row: int = 0
    """Number of the buffer that it accessed last, in the order of `LaunchCount.reads`; 0 for other memory."""


@dataclass(frozen=True)
class LaunchCount:
    """Counts of what a launch did."""

    program: PtxProgram
    module: Module
    shape: tuple[int, int, int]
    """Shape of the grid."""
    warps: int
    """Warps of a block."""
    shared_bytes: int
    """Shared memory of a block."""
    lanes: np.ndarray
    """How many lanes entered each block of instructions."""
    warps_entered: np.ndarray
    """How many warps entered each block of instructions."""
    sites: list[SiteCount]
    reads: list[Use]
    """One for each buffer, in the order of the launch's buffers, then one for each constant table; the last one is for
    accesses whose lanes lie in several of them."""
    writes: list[Use]
    rereads: tuple[tuple[int, int], ...]
    """How far apart, in the grid's order, blocks read the same bytes again, and how many (`Rereads.distances`)."""
    returns: tuple[tuple[int, int], ...]
    """The same for blocks that all run at once (`Rereads.returns`)."""
    heaviest_bytes: int
    """Bytes moved by the block that moves most, counted as `Use` counts them."""
    heaviest_work: int
    """Instructions of single threads, executed by the block that executes most."""
    voids: tuple[int, ...]
    """Operations of matrix products on zeros only, by `library.traffic.VOID_UNITS`."""
    serial: float = 1.0
    """How many blocks' work follows one another where blocks wait for each other; 1 where they run side by side."""
    log: Rereads | None = None
    """The log from which `rereads` was computed; None if only parts of the launch ran."""


class Counters:
    """A kernel's counters over all launches: lanes and warps that entered each block, and its sites' words."""

    def __init__(self, program: PtxProgram, module: Module) -> None:
        self.program, self.module = program, module
        self.blocks = np.zeros(2 * (len(module.blocks) + 1), np.int64)
        # At least one row, so that there is an address to point to.
        self.words = np.zeros((max(1, len(module.sites)), sites.WORDS), np.int64)
        blocks = {
            id(item): number
            for number, (start, end) in enumerate(module.blocks)
            for item in program.instructions[start:end]
        }
        self._site_blocks = np.array([blocks[id(site.item)] for site in module.sites], np.int64)
        """The block of instructions that each site belongs to."""

    @property
    def arrays(self) -> list[np.ndarray]:
        """All arrays in which native code counts."""
        return [self.blocks, self.words]

    def lanes(self) -> np.ndarray:
        """Return how many lanes entered each block."""
        return np.array(self.blocks[: len(self.module.blocks)])

    def warps(self) -> np.ndarray:
        """Return how many warps entered each block; where lanes never part, it follows from the count of lanes."""
        if not self.module.may_diverge:
            return np.array(self.lanes() // LANES)
        return np.array(self.blocks[len(self.module.blocks) + 1 : -1])

    def sites(self, before: np.ndarray | int = 0, entered: np.ndarray | int = 0) -> list[SiteCount]:
        """Return what each site did since its words were `before` and warps entered blocks `entered` times."""
        rows, executed = self.words - before, (self.warps() - entered)[self._site_blocks].tolist()
        rows[:, sites.ROW] = self.words[:, sites.ROW]  # this word is no count
        return [
            _site_count(site, row, times)
            for site, row, times in zip(self.module.sites, rows.tolist(), executed, strict=False)
        ]


def _site_count(site: sites.Site, row: Sequence[int], executed: int) -> SiteCount:
    sectors, missed = row[sites.SECTORS], row[sites.MISSED]
    # Passes are counted in a sample of the accesses (library/traffic.py).
    if site.kind.startswith("shared"):
        sectors, missed = round(row[sites.PASSES] * executed / max(1, row[sites.SAMPLES])), 0
    # Only loads look in the first level: stores and atomics go to the second.
    elif site.item.root != "ld":
        missed = sectors
    return SiteCount(site, row[sites.ACCESSES], sectors, row[sites.UNWRITTEN], missed, row[sites.ROW])


class Traffic:
    """Counts of native code for one launch, in addition to the kernel's counters (library/traffic.py).

    Args:
        counters: the kernel's counters.
        buffers: how many buffers the launch has, constant tables included.
        warps: warps of a block.
        shared_bytes: shared memory of a block.
        numbers: the blocks' numbers, in the order in which they run.
    """

    def __init__(self, counters: Counters, buffers: int, warps: int, shared_bytes: int, numbers: np.ndarray) -> None:
        # Reads and writes of each buffer, and of accesses that lie in several of them.
        self._halves, self._warps, self._shared_bytes = 2 * (buffers + 1), warps, shared_bytes
        self._counters, module = counters, counters.module
        # Counters of a kernel run on over all its launches: this one's are the difference.
        self._before = (counters.lanes(), counters.warps(), counters.words.copy())
        weights = sizes(module)
        self.work = np.zeros(traffic.WORK_HEAD + len(weights), np.int64)
        self.work[traffic.WORK_HEAD :] = weights
        self.work[traffic.WORK_BLOCKS] = len(weights)
        # Native code adds up what has been executed since this sum.
        self.work[traffic.WORK_LAST] = int(weights @ self._before[0])
        self.totals = np.zeros((self._halves, traffic.USE_WORDS), np.int64)
        # As an unsigned number this is larger than any sector: the least one so far.
        self.totals[:, 2] = -1
        self.cache = np.zeros(traffic.CACHE_HEAD + 2 * traffic.ENTRIES, np.int64)
        # An SM's first level and its shared memory share one store.
        room = max(_LEAST_LINES * warps, _WARP_LINES * warps - shared_bytes // traffic.LINE)
        self.cache[traffic.CACHE_ROOM] = min(traffic.MOST_LINES, room)
        self.cache[traffic.CACHE_NOW] = traffic.MOST_LINES + 1  # an unused entry is older than all that fit
        self.rereads = Rereads(numbers)

    def uses(self) -> np.ndarray:
        """Return new words for the block that runs next."""
        words = np.zeros(traffic.USES_HEAD + self._halves * traffic.USE_WORDS, np.int64)
        # The same for the block that runs.
        words[traffic.USES_HEAD :].reshape(self._halves, traffic.USE_WORDS)[:, 1] = -1
        return words

    def count(self, shape: tuple[int, int, int], serial: float = 1.0) -> LaunchCount:
        """Return all counts when the launch has ended (arguments as of `LaunchCount`)."""
        counters, (lanes, entered, words) = self._counters, self._before
        uses = [_use(row) for row in self.totals.tolist()]
        return LaunchCount(
            counters.program,
            counters.module,
            shape,
            self._warps,
            self._shared_bytes,
            lanes=counters.lanes() - lanes,
            warps_entered=counters.warps() - entered,
            sites=counters.sites(words, entered),
            reads=uses[::2],
            writes=uses[1::2],
            rereads=self.rereads.distances(uses[::2], uses[1::2]),
            returns=self.rereads.returns(uses[::2], uses[1::2]),
            heaviest_bytes=int(self.work[traffic.SECTORS_MOST]) * traffic.SECTOR,
            heaviest_work=int(self.work[traffic.WORK_MOST]),
            voids=tuple(self.work[traffic.WORK_VOID : traffic.WORK_HEAD].tolist()),
            serial=serial,
            log=self.rereads,
        )


def sizes(module: Module) -> np.ndarray:
    """Return how many instructions each block has; none where it only waits for others (`Module.polls`)."""
    return np.array([0 if number in module.polls else end - start for number, (start, end) in enumerate(module.blocks)])


def _use(row: Sequence[int]) -> Use:
    total, own, low, high = row
    if not total:
        return Use()
    return Use(*(number * traffic.SECTOR for number in (total, own, low, high + 1)))
