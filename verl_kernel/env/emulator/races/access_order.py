# SPDX-License-Identifier: Apache-2.0
"""Judges single accesses, cell by cell, where native code cannot tell that they are in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from verl_kernel.env.emulator.library import context
from verl_kernel.env.emulator.races.memory import StampRow

# PTX ISA, "Memory Consistency Model": overlapping accesses of which one writes race, unless both
# are strong or something orders them. An atomic both reads and writes, and is strong.
CONFLICTS = {
    context.LOAD: (context.STORES, context.ATOMICS),
    context.ATOMIC: (context.STORES, context.LOADS),
    context.STORE: (context.STORES, context.LOADS, context.ATOMICS, context.STRONG_LOADS),
    context.STRONG_LOAD: (context.STORES,),
}
# An atomic of scope cta is not strong towards other blocks: there it is a plain store.
CONFLICTS[context.BLOCK_ATOMIC] = CONFLICTS[context.STORE]
# Which of a cell's stamps an access leaves.
RECORDED_AS = {
    context.LOAD: context.LOADS,
    context.STORE: context.STORES,
    context.ATOMIC: context.ATOMICS,
    context.STRONG_LOAD: context.STRONG_LOADS,
    context.BLOCK_ATOMIC: context.STORES,
}


@dataclass(frozen=True)
class View:
    """How the stamps of others are ordered before a warp."""

    own_stamp: int
    """The stamp of the warp."""
    barrier_stamp: int
    """The first stamp since the last barrier."""
    barriers_only: bool
    """Whether only barriers order warps."""
    precedes: Callable[[int], bool]
    """Whether an access with this stamp happens before all that the warp does now."""
    all_precede: Callable[[int, bool], bool]
    """Whether all accesses up to a stamp happen before: those of all blocks, or only those of the stamp's block."""
    is_of_block: Callable[[int], bool]
    """Whether a stamp belongs to the warp's block."""


@dataclass(frozen=True)
class Race:
    """The access that another one raced with."""

    stamp: int
    kind: int
    """The kind of that access."""
    is_within_block: bool
    """Whether that access was by another warp of the same block."""


def check_access(view: View, verb: int, row: StampRow, cell: int, is_equal: Callable[[], bool]) -> Race | None:
    """Record an access to one cell, or return the access that it races with.

    Args:
        view: how stamps are ordered before the warp.
        verb: the kind of access.
        row: the memory that the cell belongs to.
        cell: the number of the cell.
        is_equal: whether a store leaves the bytes unchanged.
    """
    mark = 0
    for kind in CONFLICTS[verb]:
        stamp = int(row.stamps[kind][cell]) if kind in row.stamps else 0
        # The store comes first in each row of `CONFLICTS`: its mark decides how loads are taken.
        if kind == context.STORES:
            is_in_order, mark = _may_follow_store(view, verb, stamp, is_equal)
        else:  # with a mark, the loads were by warps that stored the same bytes
            is_in_order = (mark and kind != context.ATOMICS) or _may_follow(view, stamp)
        unmarked = stamp & context.LOW
        is_of_block = not is_in_order and not stamp & context.SEVERAL and view.is_of_block(unmarked)
        # Warps of one block may share an atomic of scope cta. Whether it also races with plain accesses
        # of these warps is not decided: `RaceDetector` says so once.
        if not is_in_order and not (is_of_block and verb == context.BLOCK_ATOMIC):
            return Race(unmarked, kind, is_of_block)
    stamps = row.stamps[RECORDED_AS[verb]]
    if RECORDED_AS[verb] == context.STORES:
        stamps[cell] = view.own_stamp | mark
        for kind in set(row.stamps) - {context.STORES} if not mark else ():
            row.stamps[kind][cell] = 0  # all these accesses happened before
    else:
        stamps[cell] = joined_stamp(view, int(stamps[cell]))
    return None


def _may_follow_store(view: View, verb: int, stamp: int, is_equal: Callable[[], bool]) -> tuple[bool, int]:
    """Whether an access may follow the latest store, and the mark of a cell to which several warps stored the same."""
    unmarked = stamp & context.LOW
    if _may_follow(view, stamp):
        return True, 0
    if verb == context.STORE:
        # Whichever of the stores stays, memory holds the same: Triton stores a value in each warp that has it.
        return is_equal(), stamp & context.SEVERAL | _sharing_mark(view, unmarked)
    # A warp that stored the same bytes itself reads them, whatever the others did.
    return verb == context.LOAD and unmarked == view.own_stamp, 0


def _may_follow(view: View, stamp: int) -> bool:
    """Whether an access may follow those of the one or several warps that left a stamp."""
    unmarked = stamp & context.LOW
    # One of the several warps is another one, and no barrier has been between.
    if view.barriers_only and stamp & context.SEVERAL_WARPS and unmarked >= view.barrier_stamp:
        return False
    if not view.precedes(unmarked):
        return False
    # One stamp cannot stand for several blocks: only vector clocks know of accesses by others before it.
    if view.barriers_only or not stamp & (context.SEVERAL | context.SEVERAL_WARPS):
        return not stamp & context.SEVERAL
    # The stamp is the latest of several: all accesses up to it must be known to have happened before.
    return view.all_precede(unmarked, bool(stamp & context.SEVERAL))


def _sharing_mark(view: View, unmarked: int) -> int:
    return context.SEVERAL_WARPS if view.is_of_block(unmarked) else context.SEVERAL


def joined_stamp(view: View, stamp: int) -> int:
    """Return the new stamp of a cell that this warp accesses, perhaps in addition to others."""
    unmarked, marks = stamp & context.LOW, stamp & (context.SEVERAL | context.SEVERAL_WARPS)
    if unmarked == view.own_stamp and (view.barriers_only or not marks):
        return stamp
    if view.precedes(unmarked) and not stamp & context.SEVERAL and (view.barriers_only or not marks):
        return view.own_stamp
    # Keep what the cell was accessed by before: a later access must be in order with all of it.
    return (unmarked if view.barriers_only else max(unmarked, view.own_stamp)) | marks | _sharing_mark(view, unmarked)
