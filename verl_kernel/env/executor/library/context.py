# SPDX-License-Identifier: Apache-2.0
"""Layout of the words of 64 bits that a launch passes to native code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from verl_kernel.env.executor.lowering.writer import LANES, WIDE, Key, Writer, lane_list, symbol

(
    PARAMETERS,
    SHARED,
    SHARED_BYTES,
    TABLE,
    BUFFERS,
    SITES,
    COUNTS,
    FAULT,
    GRID_X,
    GRID_Y,
    GRID_Z,
    LOCAL,
    FUEL,
    ENTRY,
    WARPS,
    FRAME,
    USES,
    TOTALS,
    WORK,
    CACHE,
    WATCH,
    REREADS,
    NUMBER,
) = range(23)
"""Pointers to the parameters, shared memory, the table of buffers, the sites' words, the blocks' counters and the
fault; lengths; the grid; local memory of the block's lanes; how many backward jumps are left; the kernel's function,
warps of a block, bytes of a warp's frame; the counts of library/traffic.py: of the block that runs, of all blocks, the
launch's work, the block's cache; the watch for races, 0 if there is none; the log of samples of reads, and the number
of the block."""
CONTEXT_WORDS = 24

START, SIZE, WRITTEN, BASE = range(4)
"""Words of a row of the table: first address and length of a buffer; the difference from its addresses to those of the
bytes that mark written bytes, 0 if all bytes are written; and the number that turns an address into a sample's name,
which does not depend on where the buffer lies."""
ROW_WORDS = 4

KIND, SITE, PLACE, BLOCK, WARP, LANE, MOMENT = range(7)
"""Words of a fault: its kind (0: none), a pointer to the site's words, the address, and the block, warp and lane."""
FAULT_WORDS = 8

OUT_OF_BOUNDS, MISALIGNED, OUT_OF_SHARED, OUT_OF_LOCAL, DIVERGENT, OUT_OF_FUEL, STOPPED, RACE = range(1, 9)
"""Kinds of faults."""

(
    ROWS,
    ROW_COUNT,
    SHIFT,
    SHARED_ROW,
    SHARED_SHIFT,
    FIRST,
    NOW,
    IDS,
    SHARED_IDS,
    WARP_NOW,
    KNOWN,
    OWNERS,
    USED,
    IS_ORDERED,
    CALL,
    CLOCK,
    IS_FRESH,
    BLOCK_PLACE,
    STARTS,
    IS_LOST,
    ID_STEP,
    BLOCK_WARPS,
    BLOCK_OWNER,
    LOG,
) = range(24)
"""Words of a watch: its rows and their number; the shift from addresses to cells, and the row and shift of shared
memory; the block's first stamp and the first one since its last barrier; pointers to each warp's current stamp for
global and for shared memory; the warp that runs; pointers to what each warp knows, to the owners of stamps and to marks
of stamps used to access memory; whether blocks may learn of each other; the function that judges unclear cases; a
pointer to the next stamp; whether a block begins, and its place in the order; a pointer to the blocks' first stamps;
whether stamps have run out; what each warp adds to the block's first stamp for global memory (0: all warps share one);
how many warps a block has, and the number of its first one in the launch; the log of accesses to global memory (0:
none), which replaces the search for races."""
WATCH_WORDS = 24

LOG_USED, LOG_ROOM, LOG_HEAD = range(3)
"""Words of a log: how many records there are, how many fit; then the records."""
RECORD_SITE, RECORD_LANES, RECORD_KIND, RECORD_WARP, RECORD_PLACES, RECORD_VALUES = 0, 1, 2, 3, 4, 36
"""Words of a record: pointer to the site's words, lanes, kind of access, warp, each lane's address; then the bytes that
memory held there, one register of all lanes after the other."""
RECORD_WORDS = 36 + 64

CELLS_START, CELLS_SIZE, STORES, LOADS, ATOMICS, STRONG_LOADS = range(6)
"""Words of a row of a watch: first address and length of watched memory; pointers to a word of 32 bits for each cell,
the stamp of its stores, loads, atomics and strong loads (0 if the kernel has no such accesses)."""
WATCH_ROW_WORDS = 6

SEVERAL_WARPS, SEVERAL, LOW = 1 << 30, 1 << 31, (1 << 30) - 1
"""Marks on a cell's stamp: several warps of a block accessed it since the same barrier; several blocks did."""

LOAD, STORE, ATOMIC, STRONG_LOAD, BARRIER, EVENT, BLOCK_ATOMIC = range(7)
"""Reasons for calls of the judging function: an access that is not clearly in order, a barrier that all warps have
passed, an access that may order blocks, an atomic for its block only; `IN_SHARED` is added for shared memory, and an
event's marks times 16 are added to `EVENT`."""
IN_SHARED = 8
READS, ACQUIRES, WRITES, RELEASES, FENCES, REPLACES = (1 << bit for bit in range(6))
"""Marks of an event: what it does, and whether it is a store, which ends the effect of an earlier release."""


# Writes a function of the library.


MASK = f"<{LANES} x i1>"
POINTERS = f"<{LANES} x ptr>"


class Function(Writer):
    """The instructions of one function."""

    def text(self, result: str, key: Key, arguments: Sequence[str], marks: str = "nounwind") -> str:
        """Return the text of the whole function, which has LLVM's attributes `marks`."""
        head = f"define {result} @{symbol(key)}({', '.join(arguments)}) {marks} {{\nentry:"
        declared = [*self.calls.values(), *self.intrinsics.values()]
        return "\n".join([head, *self.lines, "}", *sorted(declared), ""])

    def context(self, word: int, kind: str = "ptr") -> str:
        """Load a word of the launch's context."""
        return self.op(f"load {kind}, ptr {self.word('%ctx', word)}")

    def site(self, word: int, kind: str = "i64") -> str:
        """Load a word of the site."""
        return self.op(f"load {kind}, ptr {self.word('%site', word)}")

    def branch(self, condition: str, yes: str, no: str) -> None:
        """Branch to one of two blocks."""
        self.do(f"br i1 {condition}, label %{yes}, label %{no}")

    def mask(self, bits: str) -> str:
        """Convert the bits of an integer to a mask with one truth value per lane."""
        return self.op(f"bitcast i32 {bits} to {MASK}")

    def fault(self, kind: int, lanes: str, address: str) -> None:
        """Record a fault of some lanes, if there is none yet."""
        arguments = (f"i32 {kind}", f"i32 {lanes}", f"{WIDE.ints(64)} {address}", "ptr %ctx", "ptr %site")
        self.do(self.call("void", ("fault",), *arguments))

    def each_lane(self, bits: str, begin: str, body: Callable[[str], None]) -> None:
        """Run code for each lane of a mask, in order, from the current block `begin`; continues in `lanes_done`."""
        self.do("br label %lane")
        self.label("lane")
        lane = self.op(f"phi i32 [ 0, %{begin} ], [ %next_lane, %lane_end ]")
        chosen = self.op(f"trunc i32 {self.op(f'lshr i32 {bits}, {lane}')} to i1")
        self.branch(chosen, "lane_body", "lane_end")
        self.label("lane_body")
        body(lane)
        self.do("br label %lane_end")
        self.label("lane_end")
        self.do(f"%next_lane = add i32 {lane}, 1")
        self.branch(self.op(f"icmp ult i32 %next_lane, {LANES}"), "lane", "lanes_done")
        self.label("lanes_done")


def stride(size: int, bits: int) -> str:
    """Return the offsets of lanes whose accesses of `size` bytes are consecutive."""
    return lane_list(lambda lane: lane * size, bits)


def filled(text: str, values: Mapping[str, int]) -> str:
    """Replace each `@NAME@` in a text by its number."""
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    return text
