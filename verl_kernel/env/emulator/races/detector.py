# SPDX-License-Identifier: Apache-2.0
"""Watches a launch for races."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from verl_kernel.env.emulator.flow.rounding import Formats, are_copies
from verl_kernel.env.emulator.library import context, grid
from verl_kernel.env.emulator.lowering.body import is_block_atomic
from verl_kernel.env.emulator.lowering.function import Module
from verl_kernel.env.emulator.lowering.sites import WORDS, Site
from verl_kernel.env.emulator.races import memory
from verl_kernel.env.emulator.races.access_order import Race, View, check_access
from verl_kernel.env.emulator.races.memory import Ranges, StampRow, cell_bytes
from verl_kernel.env.emulator.races.vector_clocks import BlockClocks, PublishedClocks, Stamps


class WatchedBlock:
    """The state of a block; blocks that run one after the other share one.

    Args:
        sites: the kernel's sites.
        warps: warps of a block.
        shared: the block's shared memory.
        index: the block's index in the order of blocks.
        is_ordered: whether blocks may synchronise, so that vector clocks order their accesses.
    """

    def __init__(self, sites: Sequence[Site], warps: int, shared: np.ndarray, index: int, is_ordered: bool) -> None:
        # Two rows: a release gives a new stamp for global memory only, as it orders nothing in shared memory.
        ids = np.zeros((2, warps), np.uint32)
        self.ids, self.shared_ids = ids
        """Stamps of the block's warps; those for shared memory stay the same from one barrier to the next."""
        self.pointers = np.zeros(warps, np.int64)
        """Pointers to each warp's vector clock."""
        self.shared_start = int(shared.ctypes.data)
        self.shared = _shared_row(sites, len(shared)) if warps > 1 else None
        """Stamps of shared memory; None if the block has one warp only."""
        self._shared_words = np.array(self.shared.words() if self.shared else [0], np.int64)
        self.vector_clocks: BlockClocks | None = None
        """Vector clocks of the block's warps; None until the block begins, and if blocks do not synchronise."""
        self.words = np.zeros(context.WATCH_WORDS, np.int64)
        self.words[[context.IS_ORDERED, context.IS_FRESH, context.BLOCK_INDEX]] = is_ordered, 1, index
        self._point()

    def _point(self) -> None:
        for word, array in (
            (context.IDS, self.ids),
            (context.SHARED_IDS, self.shared_ids),
            (context.CLOCKS, self.pointers),
        ):
            self.words[word] = array.ctypes.data
        if self.shared is not None:
            self.words[context.SHARED_ROW] = self._shared_words.ctypes.data
            self.words[context.SHARED_SHIFT] = self.shared.shift

    @property
    def warp(self) -> int:
        """Return the warp that runs."""
        return int(self.words[context.RUNNING_WARP])

    @property
    def index(self) -> int:
        """Return the block's index in the order of blocks."""
        return int(self.words[context.BLOCK_INDEX])

    @property
    def clocks(self) -> BlockClocks:
        """Return `vector_clocks`, which must not be None."""
        assert self.vector_clocks is not None
        return self.vector_clocks

    def point_to_clocks(self) -> None:
        """Store pointers to the warps' clocks for native code."""
        self.pointers[:] = [clock.ctypes.data for clock in self.clocks.clocks]


def _shared_row(sites: Sequence[Site], length: int) -> StampRow:
    kinds = [context.STORES, context.LOADS]
    # An array of stamps for each kind that the kernel has; shared memory has no strong loads and stores.
    kinds += [context.ATOMICS] * any(site.kind == "shared atomic" for site in sites)
    return StampRow.of(0, length, cell_bytes(sites, "shared"), kinds)


def lane_numbers(address: int) -> list[int]:
    """Read a 64-bit number for each lane."""
    return list((ctypes.c_uint64 * 32).from_address(address))


def stored_bytes(address: int, size: int, bits: int) -> np.ndarray:
    """Return the bytes that each lane stores; memory holds one register of all lanes after the other."""
    count, register_bytes = size * 8 // bits, bits // 8
    raw = np.frombuffer(ctypes.string_at(address, size * 32), np.uint8)
    return np.asarray(raw.reshape(count, 32, register_bytes).transpose(1, 0, 2).reshape(32, size))


_CALLBACK = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 2, ctypes.c_void_p, ctypes.c_int64, *[ctypes.c_void_p] * 3)
"""Type of the judging function, which native code calls."""


class JudgeCall(NamedTuple):
    """A call of the judging function (`library/access_log.py`)."""

    reason: int
    """Kind of the access, or what else there is to tell."""
    lanes: int
    """Mask of the lanes."""
    addresses: int
    """Where the lanes' addresses are."""
    size: int
    """Bytes of a lane's access, and from bit 16 on the bits of a register."""
    values: int
    """Where the values are, if the access is a store."""
    launch: int
    """The block's context."""
    site: int

    def lane_addresses(self) -> list[tuple[int, int]]:
        """Return the lanes with their addresses."""
        return [(lane, address) for lane, address in enumerate(lane_numbers(self.addresses)) if self.lanes >> lane & 1]


_DEEDS = {
    context.STORES: "stored to",
    context.LOADS: "loaded from",
    context.ATOMICS: "changed atomically",
    context.STRONG_LOADS: "loaded from",
}
"""What the earlier access did, by its kind."""


@dataclass
class Watch:
    """A request to look for races, and what could not be checked."""

    most_bytes: int = 1 << 30
    """Bytes that stamps may take, and bytes that vector clocks may take."""
    between_warps: bool = True
    """Whether warps of a block are distinguished in global memory; in shared memory they always are. Triton loads a
    scalar in each warp and stores it in one: without a barrier between them this is a race, mostly without effect."""
    not_watched: list[str] = field(default_factory=list)
    """Sentences about what could not be watched; only without any is the launch free of races."""
    not_decided: list[str] = field(default_factory=list)
    """Sentences about accesses that were accepted although they may race."""

    def note(self, sentence: str) -> None:
        """Record once that something could not be watched."""
        if sentence not in self.not_watched:
            self.not_watched.append(sentence)

    def doubt(self, sentence: str) -> None:
        """Record once that an access was accepted in doubt."""
        if sentence not in self.not_decided:
            self.not_decided.append(sentence)

    def parts(self, module: Module, warps: int, blocks: int, ranges: Ranges) -> list[list[tuple[int, int]]]:
        """Split memory into parts, each watched in a run; no parts if the launch cannot be watched at all.

        Args:
            module: the kernel.
            warps: warps of a block.
            blocks: how many blocks run.
            ranges: memory that may be accessed.
        """
        # A resident block holds a clock of 4 bytes for each warp of the launch.
        if module.has_cross_block_sync and 4 * min(blocks, grid.RESIDENT) * blocks * warps > self.most_bytes:
            self.note(f"races: what its {blocks} blocks know of each other takes too many bytes; launch fewer")
            return []
        # Bytes of stamps for each cell.
        stamps = 4 * len(memory.words_of(module.sites))
        return memory.parts(ranges, self.most_bytes // stamps * memory.cell_bytes(module.sites, "global"))


class RaceDetector:
    """Watches one launch.

    Args:
        watch: the request, to which results are added.
        module: the kernel.
        warps: warps of a block.
        ranges: ranges of memory to watch, which do not overlap.
        numbers: the blocks' numbers, in order.
        fault: words of the launch's fault.
        first_site: address of the words of the kernel's first site.
    """

    def __init__(
        self,
        watch: Watch,
        module: Module,
        warps: int,
        *,
        ranges: Ranges,
        numbers: np.ndarray,
        fault: np.ndarray,
        first_site: int,
    ) -> None:
        self._first_site = first_site
        self._watch, self._module, self._warps, self._numbers, self._fault = watch, module, warps, numbers, fault
        # Recorded as stores, such atomics would race with each other; whether warps of a block have other
        # races with them is left open.
        if watch.between_warps and any(is_block_atomic(site.item) for site in module.sites):
            watch.doubt("races between warps of a block with its atomics of scope cta")
        self._total = len(numbers) * warps
        self._rows = self._new_rows(ranges)
        self._table = np.array([row.words() for row in self._rows] or [[0] * context.WATCH_ROW_WORDS], np.int64)
        # Blocks that have not begun are behind every stamp, so that `_owner` may search among all.
        self._clock, self._starts = np.ones(1, np.int64), np.full(len(numbers), 1 << 62, np.int64)
        # Blocks that take turns get their stamps by turns: the owner of one does not follow from its number.
        self._stamps = Stamps() if module.has_cross_block_sync or module.may_wait else None
        self._published = PublishedClocks(watch.most_bytes)
        # Kept as long as native code may call it.
        self._call = _CALLBACK(self._on_call)
        self._blocks: dict[int, tuple[np.ndarray, WatchedBlock]] = {}
        self._race: tuple[Race, int, int] | None = None
        self._has_ended = False

    def _new_rows(self, ranges: Ranges) -> list[StampRow]:
        sites = self._module.sites
        cell, words = memory.cell_bytes(sites, "global"), memory.words_of(sites)
        return [StampRow.of(start, length, cell, words) for start, length in ranges]

    def begin(self, launch: np.ndarray, shared: np.ndarray, index: int = 0) -> None:
        """Put the words for a block into its context."""
        if self._has_ended:
            return
        try:
            block = WatchedBlock(self._module.sites, self._warps, shared, index, self._stamps is not None)
        except MemoryError:
            self._give_up("memory is too small")
            return
        words = block.words
        for word, array in (
            (context.ROWS, self._table),
            (context.NEXT_STAMP, self._clock),
            (context.STARTS, self._starts),
        ):
            words[word] = array.ctypes.data
        words[[context.ID_STEP, context.BLOCK_WARPS]] = self._watch.between_warps, self._warps
        words[context.BLOCK_OWNER] = index * self._warps
        words[context.ROW_COUNT] = len(self._rows)
        words[context.SHIFT] = self._rows[0].shift if self._rows else 0
        words[context.CALL] = ctypes.cast(self._call, ctypes.c_void_p).value or 0
        if self._stamps is not None:
            words[context.OWNERS] = self._stamps.owners.ctypes.data
            words[context.USED] = self._stamps.used.ctypes.data
        launch[context.WATCH] = words.ctypes.data
        self._blocks[int(launch.ctypes.data)] = launch, block

    def end(self, launch: np.ndarray) -> None:
        """Remove the state of a block that has ended."""
        _, block = self._blocks.pop(int(launch.ctypes.data), (None, None))
        if block is not None and block.words[context.IS_LOST]:
            self._watch.note("races from some block on: there are more barriers than stamps; launch fewer blocks")

    def _on_call(self, *words: int) -> None:
        """Handle a call from native code."""
        call = JudgeCall(*words)
        block = self._blocks[call.launch][1]
        try:
            if call.reason == context.BARRIER:
                self._pass_barrier(block)
            elif call.reason & 15 == context.EVENT:
                block.clocks.note(block.warp, call.reason >> 4, {address for _, address in call.lane_addresses()})
                block.point_to_clocks()
            else:
                self._check(block, call)
        # ctypes would print and ignore what a callback raises: the watch ends here, with a sentence.
        except (OverflowError, MemoryError) as exc:
            self._give_up(str(exc) if isinstance(exc, OverflowError) else "memory is too small")

    def _give_up(self, reason: str) -> None:
        """Stop watching: without all events that order blocks, ordered accesses would look like races."""
        self._watch.note(f"races from some block on: {reason}; launch fewer blocks")
        self._has_ended = True
        for launch, _ in self._blocks.values():
            # Native code asks for the watch at each access: 0 turns it off at once.
            launch[context.WATCH] = 0

    def _pass_barrier(self, block: WatchedBlock) -> None:
        assert self._stamps is not None
        # Native code reports a barrier also when a block begins, before its first access.
        is_first = bool(block.words[context.IS_FRESH])
        if is_first:
            block.vector_clocks = BlockClocks(self._stamps, self._published, block.index, self._warps, self._total)
            block.ids[:] = 0
            block.words[context.BLOCK_OWNER] = block.index * self._warps
            block.vector_clocks.ids, block.vector_clocks.shared_ids = block.ids, block.shared_ids
        block.clocks.pass_barrier()
        block.words[[context.BARRIER_STAMP, context.IS_FRESH]] = block.ids[0], 0
        block.point_to_clocks()

    def _check(self, block: WatchedBlock, call: JudgeCall) -> None:
        """Judge an access."""
        in_shared, verb = bool(call.reason & context.IN_SHARED), call.reason & ~context.IN_SHARED
        size, bits = call.size & 0xFFFF, call.size >> 16
        view = self._view(block, in_shared)
        stored = stored_bytes(call.values, size, bits) if verb == context.STORE else None
        # Lanes that keep one number may have rounded it differently: that is no race (flow/rounding.py).
        formats = self._module.rounded.get((call.site - self._first_site) // 8 // WORDS) if in_shared else None
        for lane, address in call.lane_addresses():
            row = block.shared if in_shared else next(candidate for candidate in self._rows if candidate.holds(address))
            assert row is not None
            host_address = address + (block.shared_start if in_shared else 0)
            for number, cell in enumerate(row.cells(address, size)):
                start = number << row.shift
                new_bytes = None if stored is None else stored[lane, start : number + 1 << row.shift].tobytes()
                is_equal = _holds_bytes(new_bytes, host_address + start)
                if stored is not None and formats:
                    begin = start // (bits // 8) * (bits // 8)
                    register = stored[:, begin : begin + bits // 8]
                    is_equal = _holds_copies(formats, register, lane, host_address + begin)
                race = check_access(view, verb, row, cell, is_equal)
                if race is not None:
                    self._note_race(block, race, lane, address, call.site)
                    return

    def _view(self, block: WatchedBlock, in_shared: bool) -> View:
        words, warp = block.words, block.warp
        # Shared memory is new for each block: stamps of an earlier one in its cells count as in order.
        barrier_stamp, first = int(words[context.BARRIER_STAMP]), 0 if in_shared else int(words[context.FIRST])
        own_stamp = int((block.shared_ids if in_shared else block.ids)[warp])
        clock = None if block.vector_clocks is None else block.vector_clocks.clocks[warp]
        barriers_only = in_shared or clock is None

        block_warps = range(block.index * self._warps, (block.index + 1) * self._warps)
        # Triton loads a scalar in each warp and stores it in one: `between_warps` says whether that counts.
        own_warps = {block_warps[warp]} if self._watch.between_warps or in_shared else {*block_warps}

        def precedes(stamp: int) -> bool:
            # Without clocks the block's stamps between its first and the last barrier are in order.
            if not stamp or stamp == own_stamp or (barriers_only and first <= stamp < barrier_stamp):
                return True
            owner = self._owner(stamp)
            return clock is not None and (owner in own_warps or int(clock[owner]) >= stamp)

        def precede(stamp: int, by_any: bool) -> bool:
            return not barriers_only and clock is not None and self._precede(clock, own_warps, stamp, by_any)

        return View(
            own_stamp, barrier_stamp, barriers_only, precedes, precede, lambda stamp: self._owner(stamp) in block_warps
        )

    def _precede(self, clock: np.ndarray, own_warps: set[int], stamp: int, by_any: bool) -> bool:
        """Whether all accesses up to a stamp happened before; of other blocks' this is assumed and recorded."""
        assert self._stamps is not None
        latest = self._stamps.latest(stamp, self._total)
        # A warp's own accesses are in order.
        latest[[*own_warps]] = 0
        if not by_any:
            # Only the block that left the stamp.
            first = self._owner(stamp) // self._warps * self._warps
            return bool((latest <= clock)[first : first + self._warps].all())
        if not (latest <= clock).all():
            self._watch.doubt("races with one of several blocks that accessed an address: it is not known which did")
        return True

    def _owner(self, stamp: int) -> int:
        """Return the warp that got a stamp, by its number in the launch."""
        if self._stamps is not None:
            return int(self._stamps.owners[stamp])
        index = int(np.searchsorted(self._starts, stamp, "right")) - 1
        return index * self._warps + int(stamp - self._starts[index]) % self._warps

    def _note_race(self, block: WatchedBlock, race: Race, lane: int, address: int, site: int) -> None:
        """Record a race as the launch's fault, if it is the first."""
        # The launch stops at its first fault; another lane of the same access may have noted one.
        if self._fault[context.KIND]:
            return
        self._fault[[context.KIND, context.SITE, context.LANE]] = context.RACE, site, lane
        self._fault[context.ADDRESS] = np.uint64(address).view(np.int64)
        self._race = race, self._owner(race.stamp), block.index * self._warps + block.warp

    def sentence(self) -> str:
        """Describe the access that the first race was with; empty if there was no race."""
        if self._race is None:
            return ""
        race, other_warp, own_warp = self._race
        block, warp = divmod(other_warp, self._warps)
        is_same_block = block == own_warp // self._warps
        if other_warp == own_warp:
            accessor = "another warp" if race.is_within_block else "another block"
        else:
            accessor = (
                f"warp {warp} of the block" if is_same_block else f"block {int(self._numbers[block])} (warp {warp})"
            )
        ending = (
            "with no barrier between" if is_same_block and accessor != "another block" else "and nothing orders the two"
        )
        return f"which {accessor} has {_DEEDS[race.kind]}, {ending}"


def _holds_bytes(new_bytes: bytes | None, host_address: int) -> Callable[[], bool]:
    """Return a function that compares memory with these bytes."""
    return lambda: new_bytes is not None and ctypes.string_at(host_address, len(new_bytes)) == new_bytes


def _holds_copies(formats: Formats, register: np.ndarray, lane: int, host_address: int) -> Callable[[], bool]:
    """Return a function that compares memory with the bytes of a register, as copies of one number."""
    return lambda: are_copies(formats, register, lane, ctypes.string_at(host_address, register.shape[1]))
