# SPDX-License-Identifier: Apache-2.0
"""Loads a kernel's native code and launches it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from verl_kernel.env.emulator.code import BLOCK, GRID, Library, NativeCode, ObjectCache, compiled, loaded
from verl_kernel.env.emulator.copy_stores import BLOCKS, MOST, Follow, Follower
from verl_kernel.env.emulator.counts import Counters, LaunchCount, SiteCount, Traffic
from verl_kernel.env.emulator.errors import Fault
from verl_kernel.env.emulator.flow import origins
from verl_kernel.env.emulator.library import context, grid, traffic
from verl_kernel.env.emulator.lowering import sites
from verl_kernel.env.emulator.lowering.function import Module, module
from verl_kernel.env.emulator.lowering.sites import Site
from verl_kernel.env.emulator.lowering.writer import LANES
from verl_kernel.env.emulator.ptx.parser import parse
from verl_kernel.env.emulator.ptx.program import BITS, PtxProgram
from verl_kernel.env.emulator.races import rehearsal
from verl_kernel.env.emulator.races.detector import RaceDetector, Watch
from verl_kernel.env.emulator.races.memory import Ranges
from verl_kernel.env.emulator.reuse_distance import base
from verl_kernel.env.emulator.serial_work import BlockTurns

# Memory of a launch in addition to its tensors.


def parameter_block(program: PtxProgram, arguments: Sequence[int | float]) -> np.ndarray:
    """Build the block of parameters that a kernel reads: values in order, and zeros for parameters without a value."""
    data = bytearray(program.parameter_bytes + 64)
    for item, value in zip(program.parameters, arguments, strict=False):
        data[item.offset : item.offset + item.bytes] = _bytes(value, item.type, item.bytes)
    return np.frombuffer(bytes(data), np.uint8)


def _bytes(value: int | float, kind: str, size: int) -> bytes:
    """Return a value as the bytes of a parameter."""
    if isinstance(value, float):
        dtype = {16: np.float16, 32: np.float32, 64: np.float64}[BITS[kind]]
        return np.array(value, dtype).tobytes()
    # Triton passes negative numbers too: two's complement.
    return (int(value) & (1 << 8 * size) - 1).to_bytes(size, "little")


def local_memory(size: int, warps: int) -> np.ndarray:
    """Allocate local memory: the first word holds the bytes for one lane, and the memory of all lanes follows."""
    words = np.zeros((64 + size * warps * LANES + 64) // 8 + 1, np.int64)
    words[0] = size
    return words


def warp_frames(size: int, warps: int) -> tuple[np.ndarray, np.ndarray]:
    """Allocate frames of `size` bytes for the warps of a block, and a word for the block at which each warp resumes."""
    return _aligned(size * warps), np.zeros(warps, np.int32)


def _aligned(size: int) -> np.ndarray:
    """Allocate zeroed memory that begins at a multiple of 64 bytes."""
    raw = np.zeros(size + 64, np.uint8)
    start = -int(raw.ctypes.data) % 64
    return raw[start : start + size]


def written_ranges(buffers: Sequence[Buffer]) -> list[tuple[int, int]]:
    """Return address and length of all memory that a launch may write."""
    written = [(item.written, item.bytes) for item in buffers if item.written]
    return [(item.address, item.bytes) for item in buffers] + written


def shares_words(program: PtxProgram) -> bool:
    """Whether a kernel changes halves or bytes by compare-and-swap on whole words, as LLVM lowers such atomics."""
    # LLVM rounds the address of a half down to its word.
    begins = {
        item.operands[0]
        for item in program.instructions
        if item.opcode == "and.b64" and getattr(item.operands[2], "text", None) == "-4"
    }
    exchanges = (item for item in program.instructions if item.root == "atom" and {"cas", "b32"} < {*item.modifiers})
    return any(getattr(item.operands[1], "base", None) in begins for item in exchanges)


def whole_words(buffers: Sequence[Buffer]) -> list[Buffer]:
    """Extend buffers to whole words of 4 bytes; buffers whose written bytes are tracked are returned unchanged."""
    return [item if item.written else _whole_words(item) for item in buffers]


def _whole_words(item: Buffer) -> Buffer:
    # torch allocates memory of a GPU in multiples of 512 bytes: nothing else lies in such a word.
    start, end = item.address & -4, -(-(item.address + item.bytes) // 4) * 4
    return replace(item, address=start, bytes=end - start)


FAULTS = {
    context.OUT_OF_BOUNDS: "out_of_bounds",
    context.MISALIGNED: "misaligned",
    context.OUT_OF_SHARED: "out_of_shared",
    context.OUT_OF_LOCAL: "out_of_local",
    context.DIVERGENT: "divergent",
    context.OUT_OF_FUEL: "endless",
    context.STOPPED: "stopped",
    context.RACE: "race",
}
"""Names of the kinds of faults (`Fault.kind`)."""
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
"""What happened, by kind; the instruction stands before it."""
_ACCESSES = {"ld": "a load", "st": "a store", "cp": "a copy", "red": "an atomic", "atom": "an atomic"}
"""What an access out of bounds is called, by opcode."""


def line_of(program: PtxProgram, site: Site) -> tuple[str, int] | None:
    """Return file and line of the source, or None if the PTX names none."""
    source_line = site.item.source_line
    return (program.files.get(source_line.file, "?"), source_line.line) if source_line else None


def fault_of(words: np.ndarray, program: PtxProgram, site: Site, race_sentence: str) -> Fault:
    """Make an exception of the fault that native code noted.

    Args:
        words: the words in which the fault was noted.
        program: the kernel.
        site: where it happened.
        race_sentence: a description of the access with which it raced, if it is a race.
    """
    kind = FAULTS[int(words[context.KIND])]
    address = int(words[context.ADDRESS]) & (1 << 64) - 1
    where = f"byte {address} of shared memory" if site.kind.startswith("shared") else f"address {address:#x}"
    sentence = _SENTENCES[kind].format(place=address, bytes=site.bytes, where=where, met=race_sentence)
    block, warp, lane = (int(words[word]) for word in (context.BLOCK, context.WARP, context.LANE))
    quoted = f"`{site.item.text}`"
    what = _ACCESSES.get(site.item.root, quoted) if kind == "out_of_bounds" else quoted
    message = f"{what} {sentence} (block {block}, warp {warp}, lane {lane})"
    number = next((number for number, item in enumerate(program.instructions) if item is site.item), None)
    # A fault that no data decide happens on every input.
    may_differ = number is None or origins.depends_on_data(program, number)
    return Fault(kind, message, line_of(program, site), address, may_differ)


def unwritten(program: PtxProgram, count: SiteCount) -> str:
    """Describe an instruction that read bytes that were never written."""
    line = line_of(program, count.site)
    location = f" ({line[0]}, line {line[1]})" if line else ""
    return f"`{count.site.item.text}` reads uninitialised memory in {count.unwritten} lanes{location}"


_ROUNDS = 64
"""How many barriers a block passes before other blocks run, in kernels whose blocks may wait for each other."""


@dataclass(frozen=True)
class Buffer:
    """Memory that a launch may access."""

    address: int
    bytes: int
    written: int = 0
    """Address of an array with one byte for each byte of the buffer, 1 where it was written; 0 if all bytes were
    written."""


class Kernel:
    """A kernel's native code.

    Args:
        ptx: the text that Triton's compiler writes.
        warps: warps of a block.
        shared_bytes: shared memory of a block, as the compiler reports it.
        cache: where native code is kept.

    Raises:
        NotKnown: the PTX has something that the emulator has no definition for.
    """

    def __init__(self, ptx: str, warps: int, shared_bytes: int, cache: ObjectCache | None = None) -> None:
        program = parse(ptx)
        lowered = module(program, warps)
        library().need(lowered.library, cache)
        self._load(program, lowered, compiled(lowered.text, cache), warps, shared_bytes)

    @classmethod
    def loaded(cls, code: NativeCode) -> Kernel:
        """Make a kernel from native code that another process has compiled (`code.make`)."""
        kernel = cls.__new__(cls)
        library().need(code.module.library)
        kernel._load(code.program, code.module, loaded(code.native), code.warps, code.shared_bytes)
        return kernel

    def _load(self, program: PtxProgram, lowered: Module, engine: Any, warps: int, shared_bytes: int) -> None:
        self.program, self.module, self.library, self._engine = program, lowered, library(), engine
        self._entry = int(self._engine.get_function_address("warp"))
        self.tables = [
            Buffer(int(self._engine.get_global_value_address(name)), len(data))
            for name, data in program.constants.items()
        ]
        """Constant tables, which every launch may read."""
        self._shares_words = shares_words(self.program)
        self._warps, self._shared_bytes = warps, max(shared_bytes, program.shared_bytes)
        self._counters = Counters(program, lowered)

    def launch(
        self,
        shape: Sequence[int],
        arguments: Sequence[int | float],
        buffers: Sequence[Buffer],
        *,
        order: Sequence[int] | None = None,
        fuel: int = 1 << 40,
        watch: Watch | None = None,
        follow: Follow | None = None,
    ) -> LaunchCount:
        """Run blocks of a grid; returns what they did.

        Args:
            shape: shape of the grid, one to three numbers.
            arguments: values of the PTX's parameters, in order; parameters without a value are 0.
            buffers: all memory that the launch may access.
            order: numbers of the blocks to run, in this order; all blocks in ascending order if None.
            fuel: how many backward jumps may be taken, over all warps.
            watch: if given, races are looked for, and what could not be checked is added to it.
            follow: if given, the first blocks are followed; if races are looked for too, this happens in a run before.

        Raises:
            Fault: the first thing that no GPU defines; the launch stopped there.
        """
        # An atomic on a half exchanges a whole word, which may begin before the tensor or end behind it.
        if self._shares_words:
            buffers = whole_words(buffers)
        x, y, z = (*shape, 1, 1)[:3]
        numbers = np.arange(x * y * z, dtype=np.int64) if order is None else np.ascontiguousarray(order, np.int64)
        run = functools.partial(self._run, (x, y, z), arguments, buffers, fuel=fuel)
        areas = [(item.address, item.bytes) for item in buffers]
        parts = watch.parts(self.module, self._warps, len(numbers), areas) if watch is not None else []
        if watch is None or not parts:
            return run(numbers, follow=follow)
        ranges = written_ranges(buffers)
        # A log replaces the watch (`context.LOG`), so blocks are followed in a run of their own.
        if follow is not None and not self.module.may_wait:
            rehearsal.beforehand(lambda: run(numbers[:MOST], follow=follow), ranges, self._counters.arrays)
        return rehearsal.watched(
            functools.partial(run, watch=watch),
            watch,
            parts,
            numbers,
            syncs_blocks=self.module.has_cross_block_sync,
            save=lambda: rehearsal.Saved(ranges, self._counters.arrays),
        )

    def _run(
        self,
        shape: tuple[int, int, int],
        arguments: Sequence[int | float],
        buffers: Sequence[Buffer],
        numbers: np.ndarray,
        part: Ranges = (),
        *,
        fuel: int,
        watch: Watch | None = None,
        follow: Follow | None = None,
    ) -> LaunchCount:
        """Run blocks; if asked, look for races in a part of memory, or follow the first blocks."""
        run = _Run(self, shape, arguments, buffers, numbers=numbers, fuel=fuel)
        if watch is not None:
            run.watch_races(watch, part, numbers)
        elif follow is not None:
            numbers = run.followed(follow, numbers)
        # Blocks that may wait for each other must run at once, by turns; others one after the other.
        if self.module.may_wait:
            return run.traffic.count(shape, run.by_turns(numbers))
        run.in_order(numbers)
        return run.traffic.count(shape)

    def site_counts(self) -> list[SiteCount]:
        """Return what each access to memory did, over all launches."""
        return self._counters.sites()


@functools.cache
def library() -> Library:
    """Return the library of this process."""
    return Library()


class _Run:
    """One launch and its memory."""

    def __init__(
        self,
        kernel: Kernel,
        shape: tuple[int, int, int],
        arguments: Sequence[int | float],
        buffers: Sequence[Buffer],
        *,
        numbers: np.ndarray,
        fuel: int,
    ) -> None:
        self._kernel, self._shape = kernel, shape
        self._parameters = parameter_block(kernel.program, arguments)
        rows = [
            (item.address, item.bytes, item.written - item.address if item.written else 0, base(number, item.address))
            for number, item in enumerate((*buffers, *kernel.tables))
        ] or [(0, 0, 0, 0)]
        self._buffer_count = len(rows)
        self._table = np.array([*rows, (0, 0, 0, base(len(rows), rows[0][0]))], np.int64)
        """The last row is for samples of accesses to several buffers."""
        self._fault, self._fuel = np.zeros(context.FAULT_WORDS, np.int64), np.array([fuel], np.int64)
        self._local = local_memory(kernel.program.local_bytes, kernel._warps)
        counters = kernel._counters
        self.traffic = Traffic(counters, len(rows), kernel._warps, kernel._shared_bytes, numbers)
        counters.words[:, [sites.BUFFER, sites.ROOM, sites.SHADOW]] = 0  # buffers may differ from the last launch's
        self._buffers = buffers
        self._detector: RaceDetector | None = None
        self._follower: Follower | None = None
        self._shared, self._uses = self._new_shared(), self.traffic.uses()
        self._context = self._new_context(self._shared, self._uses)

    def watch_races(self, watch: Watch, part: Ranges, numbers: np.ndarray) -> None:
        """Look for races in a part of memory from now on."""
        try:
            first_site = int(self._kernel._counters.words.ctypes.data)
            self._detector = RaceDetector(
                watch,
                self._kernel.module,
                self._kernel._warps,
                ranges=part,
                numbers=numbers,
                fault=self._fault,
                first_site=first_site,
            )
        except MemoryError:
            watch.note("races: the memory to look for them is too small; make tensors smaller")

    def followed(self, follow: Follow, numbers: np.ndarray) -> np.ndarray:
        """Follow the first blocks; returns those that have not run yet."""
        words, ranges = self._kernel._counters.words, [(item.address, item.bytes) for item in self._buffers]
        follower = Follower(follow, self._kernel.module.sites, int(words.ctypes.data), ranges)
        if self._kernel.module.may_wait:
            self._follower = follower
            return numbers
        ran = 0
        while ran < len(numbers) and not follower.has_enough:
            log = follower.begin(self._context)
            self.in_order(numbers[ran : ran + 1])
            follower.end(log)
            ran += 1
        self._context[context.WATCH] = 0
        return numbers[ran:]

    def _new_shared(self) -> np.ndarray:
        # All bits set are NaN in every float type, so that a read of unwritten shared memory shows.
        return np.full(self._kernel._shared_bytes + 64, 0xFF, np.uint8)

    def _new_context(self, shared: np.ndarray, uses: np.ndarray) -> np.ndarray:
        kernel, words = self._kernel, np.zeros(context.CONTEXT_WORDS, np.int64)
        counters, traffic = kernel._counters, self.traffic
        for word, array in (
            (context.PARAMETERS, self._parameters),
            (context.SHARED, shared),
            (context.TABLE, self._table),
            (context.SITES, counters.words),
            (context.COUNTS, counters.blocks),
            (context.FAULT, self._fault),
            (context.LOCAL, self._local),
            (context.FUEL, self._fuel),
            (context.TOTALS, traffic.totals),
            (context.WORK, traffic.work),
            (context.CACHE, traffic.cache),
            (context.USES, uses),
            (context.REREADS, traffic.rereads.log),
        ):
            words[word] = array.ctypes.data
        words[context.SHARED_BYTES], words[context.BUFFERS] = kernel._shared_bytes, self._buffer_count
        words[[context.ENTRY, context.WARPS, context.FRAME]] = (kernel._entry, kernel._warps, kernel.module.frame_bytes)
        words[[context.GRID_X, context.GRID_Y, context.GRID_Z]] = self._shape
        return words

    def in_order(self, numbers: np.ndarray) -> None:
        """Run one block after the other."""
        kernel = self._kernel
        frames, states = warp_frames(kernel.module.frame_bytes, kernel._warps)
        if self._detector is not None:
            self._detector.begin(self._context, self._shared)
        call = GRID(kernel.library.grid)
        call(
            self._context.ctypes.data,
            frames.ctypes.data,
            states.ctypes.data,
            numbers.ctypes.data,
            len(numbers),
            *self._shape[:2],
        )
        if self._detector is not None:
            self._detector.end(self._context)
        self._check()

    def by_turns(self, numbers: np.ndarray) -> float:
        """Run as many blocks at once as a GPU might hold, each for some barriers at a time.

        Returns:
            How many blocks' work follows one another (`LaunchCount.serial`).
        """
        waiting = [*enumerate(map(int, numbers))]
        running: list[tuple[int, Callable[[], int]]] = []
        turns = BlockTurns(len(numbers))
        while waiting or running:
            while waiting and len(running) < grid.RESIDENT:
                running.append((waiting[0][0], self._start(*waiting.pop(0))))
            running = [block for block in running if self._turn(*block, turns) == grid.WAITING]
            # Waiting costs too, so that blocks which wait for each other for ever run out of steps.
            self._fuel -= _ROUNDS
        return turns.serial

    def _turn(self, index: int, block: Callable[[], int], turns: BlockTurns) -> int:
        """Run a block up to some barriers; a fault is raised at once, as it names the block that ran."""
        polls, counts, work = [*self._kernel.module.polls], self._kernel._counters.blocks, self.traffic.work
        before, polls_before = int(work[traffic.WORK_LAST]), int(counts[polls].sum())
        state = block()
        self._check()
        # A block that has polled since its turn began waits for others; one that only met barriers does not.
        waits = state == grid.WAITING and int(counts[polls].sum()) > polls_before
        turns.add(index, int(work[traffic.WORK_LAST]) - before, waits=waits)
        return state

    def _start(self, index: int, number: int) -> Callable[[], int]:
        """Allocate memory for a block; returns a function that runs it up to some barriers."""
        kernel, (x, y, _) = self._kernel, self._shape
        shared, uses = self._new_shared(), self.traffic.uses()
        frames, states = warp_frames(kernel.module.frame_bytes, kernel._warps)
        memory = (self._new_context(shared, uses), frames, states, shared, uses)  # the first points to the last two
        log = self._follower.begin(memory[0]) if self._follower is not None and index < BLOCKS else None
        if self._detector is not None:
            self._detector.begin(memory[0], shared, index)
        call = BLOCK(kernel.library.block)
        coordinates = (number % x, number // x % y, number // x // y)

        def turn() -> int:
            state = int(call(*(array.ctypes.data for array in memory[:3]), *coordinates, number, _ROUNDS))
            if state != grid.WAITING and self._detector is not None:
                self._detector.end(memory[0])
            if state == grid.DONE and log is not None and self._follower is not None:
                self._follower.end(log)
            return state

        return turn

    def _check(self) -> None:
        """Raise the fault that native code noted, if there is one."""
        if not self._fault[context.KIND]:
            return
        kernel = self._kernel
        # The fault names its site by the address of its words.
        number = (int(self._fault[context.SITE]) - kernel._counters.words.ctypes.data) // 8 // sites.WORDS
        site = kernel.module.sites[number]
        race_sentence = "" if self._detector is None else self._detector.sentence()
        raise fault_of(self._fault, kernel.program, site, race_sentence)
