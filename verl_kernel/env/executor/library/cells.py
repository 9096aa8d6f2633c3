# SPDX-License-Identifier: Apache-2.0
"""Records in stamps which warp accesses a cell of memory, one cell per lane.

A stamp is a number that identifies a warp between two barriers. A cell has as many bytes as the kernel's smallest
access, so that each access covers whole cells.
"""

from __future__ import annotations

from verl_kernel.env.executor.library import context
from verl_kernel.env.executor.library.accesses import gathered, scatter
from verl_kernel.env.executor.library.context import MASK, Function
from verl_kernel.env.executor.lowering.writer import WIDE, Key

ADDRESSES, STAMPS = WIDE.ints(64), WIDE.ints(32)
_IN_THE_WAY = {
    "load": (context.STORES, context.ATOMICS), "atomic": (context.STORES, context.LOADS),
    "store": (context.STORES, context.LOADS, context.ATOMICS, context.STRONG_LOADS),
    "strong_load": (context.STORES,),
}  # fmt: skip
_IN_THE_WAY["block_atomic"] = _IN_THE_WAY["store"]
"""Kinds of earlier accesses with which an access races unless they are in order."""
_KEPT_IN = {
    "load": context.LOADS, "store": context.STORES, "atomic": context.ATOMICS, "strong_load": context.STRONG_LOADS,
    "block_atomic": context.STORES,
}  # fmt: skip


class _Cells(Function):
    """Writes the function that checks one cell per lane."""

    def __init__(self, is_ordered: bool) -> None:
        super().__init__()
        self.is_ordered, self.at = is_ordered, "entry"
        self.active = self.mask("%lanes")
        self.own = self.splat("i32", "%me")
        self.now = self.splat("i32", self.op(f"trunc i64 {self.watch(context.NOW, 'i64')} to i32"))
        first = self.splat("i32", "%first")
        self.first, self.span = first, self.op(f"sub {STAMPS} {self.now}, {first}")

    def watch(self, word: int, kind: str = "ptr") -> str:
        """Load a word of the watch."""
        return self.op(f"load {kind}, ptr {self.word('%watch', word)}")

    def start(self, label: str) -> None:
        """Begin a basic block."""
        self.label(label)
        self.at = label

    def places(self, word: int) -> tuple[str, str]:
        """Return the array of stamps that a word of the row points to, and pointers to the lanes' elements."""
        base = self.op(f"load ptr, ptr {self.word('%row', word)}")
        return base, self.op(f"getelementptr i32, ptr {base}, {ADDRESSES} %cells")

    def either(self, left: str, right: str, kind: str = MASK) -> str:
        """Return the union of two masks."""
        return self.op(f"or {kind} {left}, {right}")

    def in_order(self, stamps: str, tag: str) -> str:
        """Return which stamps are 0, or belong to accesses that happen before this one in every schedule."""
        nobody = self.op(f"icmp eq {STAMPS} {stamps}, zeroinitializer")
        known = self.either(nobody, self.op(f"icmp eq {STAMPS} {stamps}, {self.own}"))
        if self.is_ordered:
            return self._known(stamps, known, tag)
        offset = self.op(f"sub {STAMPS} {stamps}, {self.first}")
        return self.either(known, self.op(f"icmp ult {STAMPS} {offset}, {self.span}"))

    def _known(self, stamps: str, plain: str, tag: str) -> str:
        """Return which stamps are in order, where blocks may learn of each other."""
        foreign = self.op(f"and {MASK} {self.op(f'xor {MASK} {plain}, {WIDE.const(1, 1)}')}, {self.active}")
        some = self.op(f"icmp ne i32 {self.bits(foreign)}, 0")
        before = self.at
        self.branch(some, f"ask{tag}", f"asked{tag}")
        self.start(f"ask{tag}")
        low = self.op(f"and {STAMPS} {stamps}, {WIDE.const(32, context.LOW)}")
        owners = self._looked_up(self.watch(context.OWNERS), low, foreign)
        known = self._looked_up("%known", owners, foreign)
        reached = self.op(f"icmp uge {STAMPS} {known}, {stamps}")
        same = self._are_own(owners)
        marked = self.op(f"icmp eq {STAMPS} {low}, {stamps}")
        learnt = self.either(plain, self.op(f"and {MASK} {marked}, {self.either(reached, same)}"))
        self.do(f"br label %asked{tag}")
        self.start(f"asked{tag}")
        return self.op(f"phi {MASK} [ {plain}, %{before} ], [ {learnt}, %ask{tag} ]")

    def _are_own(self, owners: str) -> str:
        """Return which owners are the warp itself, or any warp of its block if these are not distinguished."""
        apart = self.op(f"icmp ne i64 {self.watch(context.ID_STEP, 'i64')}, 0")
        first = self.op(f"select i1 {apart}, i32 %entity, i32 {self._narrow(context.BLOCK_OWNER)}")
        count = self.op(f"select i1 {apart}, i32 1, i32 {self._narrow(context.BLOCK_WARPS)}")
        return self._are_within(owners, first, count)

    def _narrow(self, word: int) -> str:
        return self.op(f"trunc i64 {self.watch(word, 'i64')} to i32")

    def _are_within(self, owners: str, first: str, count: str) -> str:
        offset = self.op(f"sub {STAMPS} {owners}, {self.splat('i32', first)}")
        return self.op(f"icmp ult {STAMPS} {offset}, {self.splat('i32', count)}")

    def of_block(self, stamps: str) -> str:
        """Return which stamps belong to the warp's block."""
        low = self.op(f"and {STAMPS} {stamps}, {WIDE.const(32, context.LOW)}")
        owners = self._looked_up(self.watch(context.OWNERS), low, self.active)
        return self._are_within(owners, self._narrow(context.BLOCK_OWNER), self._narrow(context.BLOCK_WARPS))

    def _looked_up(self, table: str, places: str, lanes: str) -> str:
        wide = self.op(f"zext {STAMPS} {places} to {ADDRESSES}")
        return gathered(self, self.op(f"getelementptr i32, ptr {table}, {ADDRESSES} {wide}"), lanes, 32)


def cells_text(key: Key) -> tuple[Function, str]:
    """`cells_<verb>_<ordered>(cells, lanes, row, first, me, watch, known, entity)`: record one access per lane.

    Returns the lanes that the judging function must decide; nothing is recorded for these.
    """
    verb, made = str(key[1]), _Cells(bool(key[2]))
    bad = "0"
    for word in _IN_THE_WAY[verb]:
        bad = _met(made, word, bad)
    good = made.op(f"and i32 %lanes, {made.op(f'xor i32 {bad}, -1')}")
    _, places = made.places(_KEPT_IN[verb])
    mask = made.mask(good)
    old = gathered(made, places, mask, 32)
    new = made.own if _KEPT_IN[verb] == context.STORES else _joined(made, old)
    changes = made.op(f"and {MASK} {mask}, {made.op(f'icmp ne {STAMPS} {old}, {new}')}")
    made.branch(made.op(f"icmp ne i32 {made.bits(changes)}, 0"), "keep", "kept")
    made.start("keep")
    scatter(made, new, places, changes, 32)
    made.do("br label %kept")
    made.start("kept")
    made.do(f"ret i32 {bad}")
    arguments = (
        f"{ADDRESSES} %cells", "i32 %lanes", "ptr %row", "i32 %first", "i32 %me", "ptr %watch", "ptr %known",
        "i32 %entity",
    )  # fmt: skip
    return made, made.text("i32", key, arguments)


def _met(made: _Cells, word: int, bad: str) -> str:
    """Add to `bad` the lanes whose cell was accessed by other warps and not surely in order."""
    before = made.at
    base, places = made.places(word)
    made.branch(made.op(f"icmp eq ptr {base}, null"), f"skip{word}", f"look{word}")
    made.start(f"look{word}")
    found = gathered(made, places, made.active, 32)
    if made.is_ordered:
        fine = made.in_order(found, str(word))
    else:
        single = made.op(f"and {STAMPS} {found}, {WIDE.const(32, ~context.SEVERAL_WARPS)}")
        fine = made.in_order(single, str(word))
        alone = made.op(f"icmp eq {STAMPS} {single}, {found}")
        earlier = made.op(f"icmp ult {STAMPS} {single}, {made.now}")
        fine = made.op(f"and {MASK} {fine}, {made.either(alone, earlier)}")
    odd = made.op(f"and i32 {made.op(f'xor i32 {made.bits(fine)}, -1')}, %lanes")
    both = made.op(f"or i32 {bad}, {odd}")
    end = made.at
    made.do(f"br label %skip{word}")
    made.start(f"skip{word}")
    return made.op(f"phi i32 [ {bad}, %{before} ], [ {both}, %{end} ]")


def _joined(made: _Cells, old: str) -> str:
    """Return the new stamps of cells that this warp accesses, perhaps in addition to others."""
    if made.is_ordered:
        fine = made.in_order(old, "_kept")
        latest = made.overloaded(
            "umax", STAMPS, made.op(f"and {STAMPS} {old}, {WIDE.const(32, context.LOW)}"), made.own
        )
        mark = made.op(
            f"select {MASK} {made.of_block(old)}, {STAMPS} {WIDE.const(32, context.SEVERAL_WARPS)}, "
            f"{STAMPS} {WIDE.const(32, context.SEVERAL)}"
        )
        marks = made.op(f"and {STAMPS} {old}, {WIDE.const(32, context.SEVERAL | context.SEVERAL_WARPS)}")
        several = made.op(f"or {STAMPS} {made.op(f'or {STAMPS} {latest}, {marks}')}, {mark}")
        return made.op(f"select {MASK} {fine}, {STAMPS} {made.own}, {STAMPS} {several}")
    single = made.op(f"and {STAMPS} {old}, {WIDE.const(32, ~context.SEVERAL_WARPS)}")
    is_own = made.op(f"icmp eq {STAMPS} {single}, {made.own}")
    foreign = made.op(f"icmp ult {STAMPS} {single}, {made.now}")
    mark = made.op(
        f"select {MASK} {foreign}, {STAMPS} {WIDE.const(32, context.SEVERAL)}, "
        f"{STAMPS} {WIDE.const(32, context.SEVERAL_WARPS)}"
    )
    marked = made.op(f"or {STAMPS} {old}, {mark}")
    kept = made.op(f"select {MASK} {is_own}, {STAMPS} {old}, {STAMPS} {marked}")
    earlier = made.in_order(single, "_kept")
    earlier = made.op(f"and {MASK} {earlier}, {made.op(f'xor {MASK} {is_own}, {WIDE.const(1, 1)}')}")
    return made.op(f"select {MASK} {earlier}, {STAMPS} {made.own}, {STAMPS} {kept}")
