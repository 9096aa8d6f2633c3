# SPDX-License-Identifier: Apache-2.0
"""Layout of the words of 64 bits that a launch passes to native code."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType

from verl_kernel.env.emulator.lowering.writer import LANES, WIDE, Key, Writer, lane_list, symbol

# Words of the launch's context: what native code needs of a launch, or of the block that runs.

PARAMETERS = 0
"""Pointer to the block of parameters, which all lanes share."""
SHARED = 1
"""Pointer to the block's shared memory."""
SHARED_BYTES = 2
"""Length of the block's shared memory."""
TABLE = 3
"""Pointer to the table of buffers that the launch may access."""
BUFFERS = 4
"""Number of rows of that table, without its last one."""
SITES = 5
"""Pointer to the words of the kernel's sites (`lowering.sites`)."""
COUNTS = 6
"""Pointer to the counters of lanes, and of warps, that entered each block of instructions."""
FAULT = 7
"""Pointer to the words of the launch's first fault."""
GRID_X, GRID_Y, GRID_Z = 8, 9, 10
"""Shape of the grid."""
LOCAL = 11
"""Pointer to local memory of all lanes of the block."""
FUEL = 12
"""Pointer to the number of backward jumps that are left."""
ENTRY = 13
"""Pointer to the kernel's function, which runs one warp."""
WARPS = 14
"""Warps of a block."""
FRAME = 15
"""Bytes of a warp's frame, which keeps registers while the warp waits."""
USES = 16
"""Pointer to what the block that runs has requested of each buffer (library/traffic.py)."""
TOTALS = 17
"""Pointer to the same for all blocks that have ended."""
WORK = 18
"""Pointer to the launch's work: instructions executed, and the heaviest block."""
CACHE = 19
"""Pointer to the block's first-level cache."""
WATCH = 20
"""Pointer to the words of a watch for races, or of a log; 0 if there is none."""
REREADS = 21
"""Pointer to the log of samples of reads (library/reuse_distance.py)."""
NUMBER = 22
"""Number of the block that runs."""
CONTEXT_WORDS = 24

# Words of a row of the table of buffers.

START = 0
"""Address of a buffer."""
SIZE = 1
"""Length of the buffer."""
WRITTEN = 2
"""What to add to its addresses to get those of the marks of written bytes; 0 if all bytes are written."""
BASE = 3
"""What turns an address into a sample's name, which does not depend on where the buffer lies (`rereads.base`)."""
ROW_WORDS = 4

# Words of a fault.

KIND = 0
"""One of the kinds below; 0 if there is no fault."""
SITE = 1
"""Pointer to the words of the site where it happened."""
ADDRESS = 2
"""The address, or the offset in shared or local memory."""
BLOCK, WARP, LANE = 3, 4, 5
"""Who did it."""
FAULT_WORDS = 8

OUT_OF_BOUNDS, MISALIGNED, OUT_OF_SHARED, OUT_OF_LOCAL, DIVERGENT, OUT_OF_FUEL, STOPPED, RACE = range(1, 9)
"""Kinds of faults."""

# Words of a watch for races.

ROWS = 0
"""Pointer to the rows of watched global memory."""
ROW_COUNT = 1
"""How many rows there are."""
SHIFT = 2
"""Shift from an offset in a row to the number of its cell."""
SHARED_ROW = 3
"""Pointer to the row of shared memory; 0 if a block has one warp only."""
SHARED_SHIFT = 4
"""The shift for shared memory."""
FIRST = 5
"""The block's first stamp."""
BARRIER_STAMP = 6
"""The first stamp since the block's last barrier."""
IDS = 7
"""Pointer to each warp's current stamp for global memory."""
SHARED_IDS = 8
"""Pointer to each warp's current stamp for shared memory."""
RUNNING_WARP = 9
"""The warp that runs."""
CLOCKS = 10
"""Pointer to a pointer for each warp: to its vector clock (`races.knowledge`)."""
OWNERS = 11
"""Pointer to the warp that got each stamp."""
USED = 12
"""Pointer to a mark for each stamp: whether memory was accessed with it."""
IS_ORDERED = 13
"""Whether vector clocks order accesses, as blocks may synchronise; else only barriers do."""
CALL = 14
"""The function that decides unclear cases."""
NEXT_STAMP = 15
"""Pointer to the next stamp."""
IS_FRESH = 16
"""Whether the block begins: its first stamps are given at once, as at a barrier."""
BLOCK_INDEX = 17
"""The block's index in the order in which blocks run."""
STARTS = 18
"""Pointer to the first stamp of each block."""
IS_LOST = 19
"""Whether stamps have run out, so that the launch is watched no longer."""
ID_STEP = 20
"""What each warp adds to the block's first stamp for global memory; 0: all warps of a block share one."""
BLOCK_WARPS = 21
"""Warps of a block."""
BLOCK_OWNER = 22
"""The number of the block's first warp in the launch."""
LOG = 23
"""Pointer to a log of accesses to global memory, which replaces the search for races; 0 if there is none."""
WATCH_WORDS = 24

LOG_USED, LOG_ROOM, LOG_HEAD = range(3)
"""Words of a log: how many records there are, how many fit; then the records."""
RECORD_SITE = 0
"""Pointer to the words of the site that accessed memory."""
RECORD_LANES = 1
"""The lanes that did, one bit each."""
RECORD_KIND = 2
"""The kind of access, and the bits and number of its registers (`watching.log_text`)."""
RECORD_WARP = 3
"""The warp."""
RECORD_ADDRESSES = 4
"""Each lane's address."""
RECORD_VALUES = 36
"""The bytes that memory held there, one register of all lanes after the other."""
RECORD_WORDS = 36 + 64  # four registers of 32 bits a lane, the widest access, are 64 words

CELLS_START, CELLS_SIZE = 0, 1
"""Words of a row of a watch: address and length of the memory."""
STORES, LOADS, ATOMICS, STRONG_LOADS = 2, 3, 4, 5
"""Words that point to a stamp of 32 bits for each cell, one word for each kind of access; 0 if the kernel has none."""
WATCH_ROW_WORDS = 6

# Several accesses of one kind share one stamp: the marks say that it stands for more than one warp.
SEVERAL_WARPS = 1 << 30
"""Mark on a stamp: several warps of a block accessed the cell since the same barrier."""
SEVERAL = 1 << 31
"""Mark on a stamp: several blocks accessed the cell."""
LOW = SEVERAL_WARPS - 1
"""The bits of a stamp without its marks."""

LOAD, STORE, ATOMIC, STRONG_LOAD, BARRIER, EVENT, BLOCK_ATOMIC = range(7)
"""Reasons for calls of the judging function: an access that is not clearly in order, a barrier that all warps have
passed, an access that may order blocks (`EVENT`, plus 16 times its marks), an atomic for its block only."""
IN_SHARED = 8
"""Added to the reason for an access to shared memory."""
READS, ACQUIRES, WRITES, RELEASES, FENCES, REPLACES = (1 << bit for bit in range(6))
"""Marks of an event: what it does, and whether it is a store, which ends the effect of an earlier release."""


MASK = f"<{LANES} x i1>"
"""LLVM's type of a truth value for each lane."""
POINTERS = f"<{LANES} x ptr>"
"""LLVM's type of a pointer for each lane."""


class FunctionWriter(Writer):
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

    def begin_if(self, condition: str, yes: str, no: str) -> None:
        """Branch to one of two blocks, and begin the first one."""
        self.branch(condition, yes, no)
        self.label(yes)

    def begin_unless(self, condition: str, yes: str, no: str) -> None:
        """Branch to one of two blocks, and begin the second one."""
        self.branch(condition, yes, no)
        self.label(no)

    def fall_into(self, label: str) -> None:
        """Begin a block in which the current one continues."""
        self.do(f"br label %{label}")
        self.label(label)

    def mask(self, bits: str) -> str:
        """Convert the bits of an integer to a mask with one truth value per lane."""
        return self.op(f"bitcast i32 {bits} to {MASK}")

    def fault(self, kind: int, lanes: str, address: str) -> None:
        """Record a fault of some lanes, if there is none yet."""
        arguments = (f"i32 {kind}", f"i32 {lanes}", f"{WIDE.ints(64)} {address}", "ptr %ctx", "ptr %site")
        self.do(self.call("void", ("fault",), *arguments))

    def each_lane(self, bits: str, begin: str, body: Callable[[str], None]) -> None:
        """Run code for each lane of a mask, in order, from the current block `begin`; continues in `lanes_done`."""
        self.fall_into("lane")
        lane = self.op(f"phi i32 [ 0, %{begin} ], [ %next_lane, %lane_end ]")
        chosen = self.op(f"trunc i32 {self.op(f'lshr i32 {bits}, {lane}')} to i1")
        self.begin_if(chosen, "lane_body", "lane_end")
        body(lane)
        self.fall_into("lane_end")
        self.do(f"%next_lane = add i32 {lane}, 1")
        self.begin_unless(self.op(f"icmp ult i32 %next_lane, {LANES}"), "lane", "lanes_done")


def stride(size: int, bits: int) -> str:
    """Return the offsets of lanes whose accesses of `size` bytes are consecutive."""
    return lane_list(lambda lane: lane * size, bits)


def numbers(names: str, *modules: ModuleType) -> dict[str, int]:
    """Return constants of modules by their names, for `filled`."""
    return {name: next(vars(module)[name] for module in modules if hasattr(module, name)) for name in names.split()}


_WORD = re.compile(r"^  (%\S+ = load \w+|store \w+ \S+), (%\S+)\[(\S+)\]$", re.M)
"""A word of an array that is read or written, as in `%warp = load ptr, %ctx[@ENTRY@]`."""


def filled(text: str, values: Mapping[str, int]) -> str:
    """Replace each `@NAME@` in a text by its number, and each word of an array by LLVM's address of it."""
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    numbers = itertools.count()

    def addressed(match: re.Match[str]) -> str:
        pointer = f"%word.{next(numbers)}"
        return f"  {pointer} = getelementptr i64, ptr {match[2]}, i64 {match[3]}\n  {match[1]}, ptr {pointer}"

    return _WORD.sub(addressed, text)
