# SPDX-License-Identifier: Apache-2.0
"""Judges single accesses, cell by cell, where native code cannot tell that they are in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from verl_kernel.env.executor.library import context
from verl_kernel.env.executor.races.memory import Row

IN_THE_WAY = {
    context.LOAD: (context.STORES, context.ATOMICS), context.ATOMIC: (context.STORES, context.LOADS),
    context.STORE: (context.STORES, context.LOADS, context.ATOMICS, context.STRONG_LOADS),
    context.STRONG_LOAD: (context.STORES,),
}  # fmt: skip
IN_THE_WAY[context.BLOCK_ATOMIC] = IN_THE_WAY[context.STORE]
KEPT_IN = {
    context.LOAD: context.LOADS, context.STORE: context.STORES, context.ATOMIC: context.ATOMICS,
    context.STRONG_LOAD: context.STRONG_LOADS, context.BLOCK_ATOMIC: context.STORES,
}  # fmt: skip


@dataclass(frozen=True)
class View:
    """What one warp knows about stamps."""

    own: int
    """The stamp of the warp."""
    now: int
    """The first stamp since the last barrier."""
    is_plain: bool
    """Whether warps learn of each other only at barriers."""
    precedes: Callable[[int], bool]
    """Whether an access with this stamp happens before all that the warp does now."""
    precede: Callable[[int, bool], bool]
    """Whether all accesses up to a stamp happen before: those of all blocks, or only those of the stamp's block."""
    is_of_block: Callable[[int], bool]
    """Whether a stamp belongs to the warp's block."""


@dataclass(frozen=True)
class Met:
    """The access that another one raced with."""

    stamp: int
    word: int
    """The kind of that access."""
    is_of_warps: bool
    """Whether that access was by another warp of the same block."""


def judged(view: View, verb: int, row: Row, cell: int, is_equal: Callable[[], bool]) -> Met | None:
    """Record an access to one cell, or return the access that it races with.

    Args:
        view: what the warp knows about stamps.
        verb: the kind of access.
        row: the memory that the cell belongs to.
        cell: the number of the cell.
        is_equal: whether a store leaves the bytes unchanged.
    """
    mark = 0
    for word in IN_THE_WAY[verb]:
        stamp = int(row.stamps[word][cell]) if word in row.stamps else 0
        if word == context.STORES:
            is_fine, mark = _stored(view, verb, stamp, is_equal)
        else:  # with a mark, the loads were by warps that stored the same bytes
            is_fine = (mark and word != context.ATOMICS) or _accessed(view, stamp)
        low = stamp & context.LOW
        is_own = not is_fine and not stamp & context.SEVERAL and view.is_of_block(low)
        if not is_fine and not (is_own and verb == context.BLOCK_ATOMIC):
            return Met(low, word, is_own)
    stamps = row.stamps[KEPT_IN[verb]]
    if KEPT_IN[verb] == context.STORES:
        stamps[cell] = view.own | mark
        for word in set(row.stamps) - {context.STORES} if not mark else ():
            row.stamps[word][cell] = 0  # all these accesses happened before
    else:
        stamps[cell] = joined(view, int(stamps[cell]))
    return None


def _stored(view: View, verb: int, stamp: int, is_equal: Callable[[], bool]) -> tuple[bool, int]:
    """Whether an access may follow the latest store, and the mark of a cell to which several warps stored the same."""
    low = stamp & context.LOW
    if _accessed(view, stamp):
        return True, 0
    if verb == context.STORE:
        return is_equal(), stamp & context.SEVERAL | _mark(view, low)
    return verb == context.LOAD and low == view.own, 0


def _accessed(view: View, stamp: int) -> bool:
    """Whether an access may follow those of the one or several warps that left a stamp."""
    low = stamp & context.LOW
    if view.is_plain and stamp & context.SEVERAL_WARPS and low >= view.now:
        return False
    if not view.precedes(low):
        return False
    if view.is_plain or not stamp & (context.SEVERAL | context.SEVERAL_WARPS):
        return not stamp & context.SEVERAL
    return view.precede(low, bool(stamp & context.SEVERAL))


def _mark(view: View, low: int) -> int:
    return context.SEVERAL_WARPS if view.is_of_block(low) else context.SEVERAL


def joined(view: View, stamp: int) -> int:
    """Return the new stamp of a cell that this warp accesses, perhaps in addition to others."""
    low, marks = stamp & context.LOW, stamp & (context.SEVERAL | context.SEVERAL_WARPS)
    if low == view.own and (view.is_plain or not marks):
        return stamp
    if view.precedes(low) and not stamp & context.SEVERAL and (view.is_plain or not marks):
        return view.own
    return (low if view.is_plain else max(low, view.own)) | marks | _mark(view, low)
