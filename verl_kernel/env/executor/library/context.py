# SPDX-License-Identifier: Apache-2.0
"""Layout of what a launch hands to native code: words of 64 bits."""

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
fault; lengths; the grid; local memory of the block's lanes; how many jumps back are left; the kernel's function, warps
of a block, bytes of a warp's frame; what library/traffic.py counts: of the block that runs, of all blocks, the launch's
work, the block's cache; the watch of races, 0 where there is none; where samples of what blocks read are written down,
and the number of the block."""
CONTEXT_WORDS = 24

START, SIZE, WRITTEN, BASE = range(4)
"""Words of a row of the table: first address and length of a buffer, and the difference from its addresses to those of
the bytes that say what was written, 0 where all is; what turns an address into a sample's name, wherever the buffer
lies."""
ROW_WORDS = 4

KIND, SITE, PLACE, BLOCK, WARP, LANE, MOMENT = range(7)
"""Words of a fault: what it was (0: none), a pointer to the site's words, the address, who met it."""
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
"""Words of a watch: its rows and their number; how far addresses are shifted to give cells, and the row and shift of
shared memory; the block's first stamp and the first one since its last barrier; pointers to each warp's stamp now, of
global and of shared memory; the warp that runs; pointers to what each warp knows, to the owners of stamps and to marks
of those that accessed memory; whether blocks may learn of each other; the function that judges what is no plain case; a
pointer to the next stamp; whether a block begins, and its place in the order; pointer to the blocks' first stamps;
whether stamps have run out; what a warp adds to the block's first stamp to have its own of global memory (0: all share
one); how many warps a block has, and the number of its first one in the launch; where accesses to global memory are
written down, which is all that is done with them then (0: nowhere)."""
WATCH_WORDS = 24

LOG_USED, LOG_ROOM, LOG_HEAD = range(3)
"""Words of a log: how many records there are, how many fit; the records."""
RECORD_SITE, RECORD_LANES, RECORD_KIND, RECORD_WARP, RECORD_PLACES, RECORD_VALUES = 0, 1, 2, 3, 4, 36
"""Words of a record: pointer to the site's words, lanes, what was done, the warp, each lane's address; bytes that each
lane met there, as long as a register for all lanes, then the next register."""
RECORD_WORDS = 36 + 64

CELLS_START, CELLS_SIZE, STORES, LOADS, ATOMICS, STRONG_LOADS = range(6)
"""Words of a row of a watch: first address and length of memory that is watched, pointers to a word of 32 bits for each
of its cells: who stored, loaded, changed it atomically, loaded it strongly (0 where nobody can)."""
WATCH_ROW_WORDS = 6

SEVERAL_WARPS, SEVERAL, LOW = 1 << 30, 1 << 31, (1 << 30) - 1
"""Marks on a cell's stamp: several warps of a block have done so since the same barrier; several blocks have."""

LOAD, STORE, ATOMIC, STRONG_LOAD, BARRIER, EVENT, BLOCK_ATOMIC = range(7)
"""What the function is called for that judges: an access that is no plain case, a barrier that all warps have passed,
an access that may put blocks in order, an atomic that is one for its block only; one on shared memory has `IN_SHARED`
added, an event its marks times 16."""
IN_SHARED = 8
READS, ACQUIRES, WRITES, RELEASES, FENCES, REPLACES = (1 << place for place in range(6))
"""Marks of an event: what it does, and whether it is a store, which ends what an earlier release began."""


# A function of the library while it is written.


MASK = f"<{LANES} x i1>"
POINTERS = f"<{LANES} x ptr>"


class Function(Writer):
    """Instructions of one function."""

    def text(self, result: str, key: Key, arguments: Sequence[str]) -> str:
        """The whole function."""
        head = f"define {result} @{symbol(key)}({', '.join(arguments)}) nounwind {{\nentry:"
        declared = [*self.calls.values(), *self.intrinsics.values()]
        return "\n".join([head, *self.lines, "}", *sorted(declared), ""])

    def context(self, word: int, kind: str = "ptr") -> str:
        """A word of the launch's context."""
        return self.op(f"load {kind}, ptr {self.word('%ctx', word)}")

    def site(self, word: int, kind: str = "i64") -> str:
        """A word of the site."""
        return self.op(f"load {kind}, ptr {self.word('%site', word)}")

    def branch(self, condition: str, yes: str, no: str) -> None:
        """Go to one of two blocks."""
        self.do(f"br i1 {condition}, label %{yes}, label %{no}")

    def mask(self, bits: str) -> str:
        """A truth value a lane, from an integer."""
        return self.op(f"bitcast i32 {bits} to {MASK}")

    def fault(self, kind: int, lanes: str, address: str) -> None:
        """Note a fault of some lanes, if there is none yet."""
        arguments = (f"i32 {kind}", f"i32 {lanes}", f"{WIDE.ints(64)} {address}", "ptr %ctx", "ptr %site")
        self.do(self.call("void", ("fault",), *arguments))

    def each_lane(self, bits: str, begin: str, body: Callable[[str], None]) -> None:
        """Run code for every lane of a mask, in order; it begins in the block named and goes on after `lanes_done`."""
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
    """Offsets of lanes that access one after the other, so many bytes each."""
    return lane_list(lambda lane: lane * size, bits)


def filled(text: str, values: Mapping[str, int]) -> str:
    """A text with numbers where it has `@NAME@`."""
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    return text
