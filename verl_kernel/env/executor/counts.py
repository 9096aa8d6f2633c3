# SPDX-License-Identifier: Apache-2.0
"""What a launch did, as native code counted it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from verl_kernel.env.executor.library import traffic
from verl_kernel.env.executor.lowering import sites
from verl_kernel.env.executor.lowering.function import Module
from verl_kernel.env.executor.lowering.writer import LANES
from verl_kernel.env.executor.ptx.program import Program
from verl_kernel.env.executor.rereads import Rereads, Use

_WARP_LINES = 32
"""Lines of the first-level cache for each warp: a 64th of 256 kB, as where an H100's SM is full of warps."""
_LEAST_LINES = 16
"""Those that are left for each warp, however much of the 256 kB is shared memory: the fewer blocks fit, then."""


@dataclass(frozen=True)
class SiteCount:
    """What an instruction that accesses memory did."""

    site: sites.Site
    accesses: int
    """By lanes."""
    sectors: int
    """Of 32 bytes, by warps; of shared memory, passes over its banks, from a sample."""
    unwritten: int
    """Lanes that read bytes nobody had written."""
    missed: int = 0
    """Those of the sectors that were asked of the second level."""


@dataclass(frozen=True)
class LaunchCount:
    """What a launch did."""

    program: Program
    module: Module
    shape: tuple[int, int, int]
    """Of the grid."""
    warps: int
    """Of a block."""
    shared_bytes: int
    """Of a block."""
    lanes: np.ndarray
    """That entered each block of instructions."""
    warps_entered: np.ndarray
    """The same by warps."""
    sites: list[SiteCount]
    reads: list[Use]
    """By buffer, in the order of the launch's, then by constant table; the last one is of accesses whose lanes lie in
    several of them."""
    writes: list[Use]
    rereads: tuple[tuple[int, int], ...]
    """How far apart blocks read the same bytes again, by the grid's order (`Rereads.distances`)."""
    heaviest_bytes: int
    """What the block that moves most moves, as `Use` counts."""
    heaviest_work: int
    """Instructions of single threads of the block that executes most."""
    voids: tuple[int, ...]
    """Operations of products on nothing, by `library.traffic.VOID_UNITS`."""
    log: Rereads | None = None
    """What `rereads` comes from; None of a launch of which parts ran."""

    def instructions(self) -> Counter[str]:
        """How many lanes executed each opcode; those that a guard held back count too."""
        return _by_opcode(self.program, self.module, self.lanes)

    def warp_instructions(self) -> Counter[str]:
        """How many warps executed each opcode."""
        return _by_opcode(self.program, self.module, self.warps_entered)


class Counters:
    """A kernel's counters, over all launches: how many lanes and warps entered each block, and its sites' words."""

    def __init__(self, program: Program, module: Module) -> None:
        self.program, self.module = program, module
        self.blocks = np.zeros(2 * (len(module.blocks) + 1), np.int64)
        self.words = np.zeros((max(1, len(module.sites)), sites.WORDS), np.int64)
        blocks = {
            id(item): number
            for number, (start, end) in enumerate(module.blocks)
            for item in program.instructions[start:end]
        }
        self._places = np.array([blocks[id(site.item)] for site in module.sites], np.int64)
        """Block of each site."""

    @property
    def arrays(self) -> list[np.ndarray]:
        """All that native code counts in."""
        return [self.blocks, self.words]

    def lanes(self) -> np.ndarray:
        """That entered each block."""
        return np.array(self.blocks[: len(self.module.blocks)])

    def warps(self) -> np.ndarray:
        """That entered each block; lanes that never part are not counted by warps, as they are all of one."""
        if not self.module.may_part:
            return np.array(self.lanes() // LANES)
        return np.array(self.blocks[len(self.module.blocks) + 1 : -1])

    def instructions(self) -> Counter[str]:
        """How many lanes executed each opcode."""
        return _by_opcode(self.program, self.module, self.lanes())

    def sites(self, before: np.ndarray | int = 0, entered: np.ndarray | int = 0) -> list[SiteCount]:
        """What each site did since its words were `before`, and warps that entered each block `entered`."""
        rows, executed = self.words - before, (self.warps() - entered)[self._places].tolist()
        return [
            _site_count(site, row, times)
            for site, row, times in zip(self.module.sites, rows.tolist(), executed, strict=False)
        ]


def _site_count(site: sites.Site, row: Sequence[int], executed: int) -> SiteCount:
    sectors, missed = row[sites.SECTORS], row[sites.MISSED]
    if site.kind.startswith("shared"):
        sectors, missed = round(row[sites.PASSES] * executed / max(1, row[sites.SAMPLES])), 0
    elif site.item.root != "ld":
        missed = sectors
    return SiteCount(site, row[sites.ACCESSES], sectors, row[sites.UNWRITTEN], missed)


class Traffic:
    """What native code counts of one launch beside the kernel's counters (library/traffic.py).

    Args:
        counters: the kernel's.
        buffers: how many the launch has, constant tables included.
        warps: of a block.
        shared_bytes: of a block.
        numbers: of the blocks, in the order in which they run.
    """

    def __init__(
        self, counters: Counters, buffers: int, warps: int, shared_bytes: int, numbers: np.ndarray
    ) -> None:  # fmt: skip
        self._halves, self._warps, self._shared_bytes = 2 * (buffers + 1), warps, shared_bytes
        self._counters, module = counters, counters.module
        self._before = (counters.lanes(), counters.warps(), counters.words.copy())
        weights = np.array([end - start for start, end in module.blocks], np.int64)
        self.work = np.zeros(traffic.WORK_HEAD + len(weights), np.int64)
        self.work[traffic.WORK_HEAD :] = weights
        self.work[traffic.WORK_BLOCKS] = len(weights)
        self.work[traffic.WORK_LAST] = int(weights @ self._before[0])
        self.totals = np.zeros((self._halves, traffic.USE_WORDS), np.int64)
        self.totals[:, 2] = -1
        self.cache = np.zeros(traffic.CACHE_HEAD + 2 * traffic.ENTRIES, np.int64)
        room = max(_LEAST_LINES * warps, _WARP_LINES * warps - shared_bytes // traffic.LINE)
        self.cache[traffic.CACHE_ROOM] = min(traffic.MOST_LINES, room)
        self.cache[traffic.CACHE_NOW] = traffic.MOST_LINES + 1  # what no place has yet is older than all that fits
        self.rereads = Rereads(numbers)

    def uses(self) -> np.ndarray:
        """New words for the block that runs."""
        words = np.zeros(traffic.USES_HEAD + self._halves * traffic.USE_WORDS, np.int64)
        words[traffic.USES_HEAD :].reshape(self._halves, traffic.USE_WORDS)[:, 1] = -1
        return words

    def count(self, shape: tuple[int, int, int]) -> LaunchCount:
        """All of it, when the launch has ended."""
        counters, (lanes, entered, words) = self._counters, self._before
        uses = [_use(row) for row in self.totals.tolist()]
        return LaunchCount(
            counters.program, counters.module, shape, self._warps, self._shared_bytes,
            lanes=counters.lanes() - lanes, warps_entered=counters.warps() - entered,
            sites=counters.sites(words, entered), reads=uses[::2], writes=uses[1::2],
            rereads=self.rereads.distances(uses[::2], uses[1::2]),
            heaviest_bytes=int(self.work[traffic.SECTORS_MOST]) * traffic.SECTOR,
            heaviest_work=int(self.work[traffic.WORK_MOST]),
            voids=tuple(self.work[traffic.WORK_VOID : traffic.WORK_HEAD].tolist()), log=self.rereads,
        )  # fmt: skip


def _use(row: Sequence[int]) -> Use:
    total, own, low, high = row
    if not total:
        return Use()
    return Use(*(number * traffic.SECTOR for number in (total, own, low, high + 1)))


def _by_opcode(program: Program, module: Module, entered: np.ndarray) -> Counter[str]:
    found: Counter[str] = Counter()
    for (start, end), number in zip(module.blocks, entered.tolist(), strict=True):
        for item in program.instructions[start:end]:
            found[item.opcode] += number
    return found
