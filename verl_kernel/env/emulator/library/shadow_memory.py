# SPDX-License-Identifier: Apache-2.0
"""Records in stamps which warp accesses a cell of memory, one cell per lane.

A stamp is a number that identifies a warp between two barriers. A cell has as many bytes as the kernel's smallest
access, so that each access covers whole cells.
"""

from __future__ import annotations

from verl_kernel.env.emulator.library import context
from verl_kernel.env.emulator.library.accesses import gathered, scatter
from verl_kernel.env.emulator.library.context import MASK, FunctionWriter
from verl_kernel.env.emulator.lowering.writer import WIDE, Key

ADDRESSES, STAMPS = WIDE.ints(64), WIDE.ints(32)
_CONFLICTS = {
    "load": (context.STORES, context.ATOMICS),
    "atomic": (context.STORES, context.LOADS),
    "store": (context.STORES, context.LOADS, context.ATOMICS, context.STRONG_LOADS),
    "strong_load": (context.STORES,),
}
_CONFLICTS["block_atomic"] = _CONFLICTS["store"]
"""Kinds of earlier accesses with which an access races unless they are in order."""
_RECORDED_AS = {
    "load": context.LOADS,
    "store": context.STORES,
    "atomic": context.ATOMICS,
    "strong_load": context.STRONG_LOADS,
    "block_atomic": context.STORES,
}


class _Cells(FunctionWriter):
    """Writes the function that checks one cell per lane."""

    def __init__(self, is_ordered: bool) -> None:
        super().__init__()
        self.is_ordered, self.label_now = is_ordered, "entry"
        self.active = self.mask("%lanes")
        self.own_stamp = self.splat("i32", "%me")
        self.barrier_stamp = self.splat("i32", self.op(f"trunc i64 {self.watch(context.BARRIER_STAMP, 'i64')} to i32"))
        first = self.splat("i32", "%first")
        self.first, self.span = first, self.op(f"sub {STAMPS} {self.barrier_stamp}, {first}")

    def watch(self, word: int, kind: str = "ptr") -> str:
        """Load a word of the watch."""
        return self.op(f"load {kind}, ptr {self.word('%watch', word)}")

    def label(self, name: str) -> None:
        """Begin a block."""
        super().label(name)
        self.label_now = name

    def stamp_pointers(self, word: int) -> tuple[str, str]:
        """Return the array of stamps that a word of the row points to, and pointers to the lanes' elements."""
        base = self.op(f"load ptr, ptr {self.word('%row', word)}")
        return base, self.op(f"getelementptr i32, ptr {base}, {ADDRESSES} %cells")

    def either(self, first: str, second: str, kind: str = MASK) -> str:
        """Return the union of two masks."""
        return self.op(f"or {kind} {first}, {second}")

    def in_order(self, stamps: str, tag: str) -> str:
        """Return which stamps are 0, or belong to accesses that happen before this one in every schedule."""
        unaccessed = self.op(f"icmp eq {STAMPS} {stamps}, zeroinitializer")
        ordered = self.either(unaccessed, self.op(f"icmp eq {STAMPS} {stamps}, {self.own_stamp}"))
        # Otherwise the block's stamps up to its last barrier are in order; with clocks they are looked up.
        if self.is_ordered:
            return self._ordered_by_clocks(stamps, ordered, tag)
        offset = self.op(f"sub {STAMPS} {stamps}, {self.first}")
        return self.either(ordered, self.op(f"icmp ult {STAMPS} {offset}, {self.span}"))

    def _ordered_by_clocks(self, stamps: str, plain: str, tag: str) -> str:
        """Return which stamps are in order by the warp's vector clock, where blocks may synchronise."""
        # Where no lane is left, no clock needs to be read.
        foreign = self.op(f"and {MASK} {self.op(f'xor {MASK} {plain}, {WIDE.const(1, 1)}')}, {self.active}")
        has_foreign = self.op(f"icmp ne i32 {self.bits(foreign)}, 0")
        before = self.label_now
        self.begin_if(has_foreign, f"ask{tag}", f"asked{tag}")
        low = self.op(f"and {STAMPS} {stamps}, {WIDE.const(32, context.LOW)}")
        owners = self._gathered_at(self.watch(context.OWNERS), low, foreign)
        latest_known = self._gathered_at("%known", owners, foreign)
        is_known = self.op(f"icmp uge {STAMPS} {latest_known}, {stamps}")
        is_own = self._are_own(owners)
        # A stamp with marks stands for several warps: the judging function decides.
        is_unmarked = self.op(f"icmp eq {STAMPS} {low}, {stamps}")
        learnt = self.either(plain, self.op(f"and {MASK} {is_unmarked}, {self.either(is_known, is_own)}"))
        self.fall_into(f"asked{tag}")
        return self.op(f"phi {MASK} [ {plain}, %{before} ], [ {learnt}, %ask{tag} ]")

    def _are_own(self, owners: str) -> str:
        """Return which owners are the warp itself, or any warp of its block if these are not distinguished."""
        # `Watch.between_warps`: in global memory warps of a block may count as one.
        are_distinguished = self.op(f"icmp ne i64 {self.watch(context.ID_STEP, 'i64')}, 0")
        first = self.op(f"select i1 {are_distinguished}, i32 %entity, i32 {self._narrow(context.BLOCK_OWNER)}")
        count = self.op(f"select i1 {are_distinguished}, i32 1, i32 {self._narrow(context.BLOCK_WARPS)}")
        return self._are_within(owners, first, count)

    def _narrow(self, word: int) -> str:
        return self.op(f"trunc i64 {self.watch(word, 'i64')} to i32")

    def _are_within(self, owners: str, first: str, count: str) -> str:
        offset = self.op(f"sub {STAMPS} {owners}, {self.splat('i32', first)}")
        return self.op(f"icmp ult {STAMPS} {offset}, {self.splat('i32', count)}")

    def of_block(self, stamps: str) -> str:
        """Return which stamps belong to the warp's block."""
        low = self.op(f"and {STAMPS} {stamps}, {WIDE.const(32, context.LOW)}")
        owners = self._gathered_at(self.watch(context.OWNERS), low, self.active)
        return self._are_within(owners, self._narrow(context.BLOCK_OWNER), self._narrow(context.BLOCK_WARPS))

    def _gathered_at(self, table: str, indices: str, lanes: str) -> str:
        wide = self.op(f"zext {STAMPS} {indices} to {ADDRESSES}")
        return gathered(self, self.op(f"getelementptr i32, ptr {table}, {ADDRESSES} {wide}"), lanes, 32)


def cells_text(key: Key) -> tuple[FunctionWriter, str]:
    """`cells_<verb>_<ordered>(cells, lanes, row, first, me, watch, known, entity)`: record one access per lane.

    Returns the lanes that the judging function must decide; nothing is recorded for these.
    """
    verb, body = str(key[1]), _Cells(bool(key[2]))
    # Only lanes that are surely in order are recorded here; for the rest Python is asked.
    undecided = "0"
    for word in _CONFLICTS[verb]:
        undecided = _add_undecided(body, word, undecided)
    decided = body.op(f"and i32 %lanes, {body.op(f'xor i32 {undecided}, -1')}")
    _, pointers = body.stamp_pointers(_RECORDED_AS[verb])
    mask = body.mask(decided)
    old = gathered(body, pointers, mask, 32)
    new = body.own_stamp if _RECORDED_AS[verb] == context.STORES else _joined(body, old)
    # A stamp that stays is not stored again.
    changes = body.op(f"and {MASK} {mask}, {body.op(f'icmp ne {STAMPS} {old}, {new}')}")
    body.begin_if(body.op(f"icmp ne i32 {body.bits(changes)}, 0"), "keep", "kept")
    scatter(body, new, pointers, changes, 32)
    body.fall_into("kept")
    body.do(f"ret i32 {undecided}")
    arguments = (
        f"{ADDRESSES} %cells",
        "i32 %lanes",
        "ptr %row",
        "i32 %first",
        "i32 %me",
        "ptr %watch",
        "ptr %known",
        "i32 %entity",
    )
    return body, body.text("i32", key, arguments)


def _add_undecided(body: _Cells, word: int, undecided: str) -> str:
    """Add to `undecided` the lanes whose cell was accessed by other warps and not surely in order."""
    before = body.label_now
    base, pointers = body.stamp_pointers(word)
    # The kernel has no accesses of this kind.
    body.begin_unless(body.op(f"icmp eq ptr {base}, null"), f"skip{word}", f"look{word}")
    stamps = gathered(body, pointers, body.active, 32)
    if body.is_ordered:
        ordered = body.in_order(stamps, str(word))
    else:
        # Several warps of a block: in order only if all of them were before the last barrier.
        single = body.op(f"and {STAMPS} {stamps}, {WIDE.const(32, ~context.SEVERAL_WARPS)}")
        ordered = body.in_order(single, str(word))
        is_single_warp = body.op(f"icmp eq {STAMPS} {single}, {stamps}")
        before_barrier = body.op(f"icmp ult {STAMPS} {single}, {body.barrier_stamp}")
        ordered = body.op(f"and {MASK} {ordered}, {body.either(is_single_warp, before_barrier)}")
    unordered = body.op(f"and i32 {body.op(f'xor i32 {body.bits(ordered)}, -1')}, %lanes")
    undecided_so_far = body.op(f"or i32 {undecided}, {unordered}")
    end = body.label_now
    body.fall_into(f"skip{word}")
    return body.op(f"phi i32 [ {undecided}, %{before} ], [ {undecided_so_far}, %{end} ]")


def _joined(body: _Cells, old: str) -> str:
    """Return the new stamps of cells that this warp accesses, perhaps in addition to others."""
    if body.is_ordered:
        # If all before happened before this access, its own stamp says enough.
        ordered = body.in_order(old, "_kept")
        latest = body.overloaded(
            "umax", STAMPS, body.op(f"and {STAMPS} {old}, {WIDE.const(32, context.LOW)}"), body.own_stamp
        )
        mark = body.op(
            f"select {MASK} {body.of_block(old)}, {STAMPS} {WIDE.const(32, context.SEVERAL_WARPS)}, "
            f"{STAMPS} {WIDE.const(32, context.SEVERAL)}"
        )
        marks = body.op(f"and {STAMPS} {old}, {WIDE.const(32, context.SEVERAL | context.SEVERAL_WARPS)}")
        several = body.op(f"or {STAMPS} {body.op(f'or {STAMPS} {latest}, {marks}')}, {mark}")
        return body.op(f"select {MASK} {ordered}, {STAMPS} {body.own_stamp}, {STAMPS} {several}")
    single = body.op(f"and {STAMPS} {old}, {WIDE.const(32, ~context.SEVERAL_WARPS)}")
    is_own = body.op(f"icmp eq {STAMPS} {single}, {body.own_stamp}")
    # A stamp from before the last barrier that is not in order is another block's.
    foreign = body.op(f"icmp ult {STAMPS} {single}, {body.barrier_stamp}")
    mark = body.op(
        f"select {MASK} {foreign}, {STAMPS} {WIDE.const(32, context.SEVERAL)}, "
        f"{STAMPS} {WIDE.const(32, context.SEVERAL_WARPS)}"
    )
    marked = body.op(f"or {STAMPS} {old}, {mark}")
    shared_stamp = body.op(f"select {MASK} {is_own}, {STAMPS} {old}, {STAMPS} {marked}")
    replaced = body.in_order(single, "_kept")
    replaced = body.op(f"and {MASK} {replaced}, {body.op(f'xor {MASK} {is_own}, {WIDE.const(1, 1)}')}")
    return body.op(f"select {MASK} {replaced}, {STAMPS} {body.own_stamp}, {STAMPS} {shared_stamp}")
