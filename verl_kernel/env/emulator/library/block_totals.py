# SPDX-License-Identifier: Apache-2.0
"""Sums counts in native code when a block pauses (`vk_settle`) and when it ends (`vk_finish`)."""

from __future__ import annotations

from verl_kernel.env.emulator.library import context, traffic
from verl_kernel.env.emulator.library.context import filled, numbers
from verl_kernel.env.emulator.library.reuse_distance import USES_TIME, thin_text

# Counts are a block's own until it ends, as bytes that it requests again count once (`rereads.Use.own`).
_TEXT = """
define internal void @vk_settle(ptr %ctx) nounwind {
entry:
  %work = load ptr, %ctx[@WORK@]
  %counts = load ptr, %ctx[@COUNTS@]
  %uses = load ptr, %ctx[@USES@]
  %blocks = load i64, %work[@WORK_BLOCKS@]
  %weights = getelementptr i64, ptr %work, i64 @WORK_HEAD@
  br label %each
each:
  %i = phi i64 [ 0, %entry ], [ %i.next, %add ]
  %sum = phi i64 [ 0, %entry ], [ %sum.next, %add ]
  %more = icmp ult i64 %i, %blocks
  br i1 %more, label %add, label %out
add:  ; lanes that entered a block of instructions, times its length
  %count.p = getelementptr i64, ptr %counts, i64 %i
  %count = load i64, ptr %count.p
  %weight.p = getelementptr i64, ptr %weights, i64 %i
  %weight = load i64, ptr %weight.p
  %product = mul i64 %count, %weight
  %sum.next = add i64 %sum, %product
  %i.next = add i64 %i, 1
  br label %each
out:  ; what has been added since the last pause is this block's
  %last.p = getelementptr i64, ptr %work, i64 @WORK_LAST@
  %last = load i64, ptr %last.p
  store i64 %sum, ptr %last.p
  %done = sub i64 %sum, %last
  %own = load i64, ptr %uses
  %own.next = add i64 %own, %done
  store i64 %own.next, ptr %uses
  %log = load ptr, %ctx[@REREADS@]
  call void @vk_thin(ptr %log)
  ret void
}

define internal void @vk_finish(ptr %ctx) nounwind {
entry:
  call void @vk_settle(ptr %ctx)
  %work = load ptr, %ctx[@WORK@]
  %uses = load ptr, %ctx[@USES@]
  %totals = load ptr, %ctx[@TOTALS@]
  %rows = load i64, %ctx[@BUFFERS@]
  %all = add i64 %rows, 1
  %halves = shl i64 %all, 1
  %first = getelementptr i64, ptr %uses, i64 @USES_HEAD@
  br label %each
each:
  %i = phi i64 [ 0, %entry ], [ %i.next, %added ]
  %moved = phi i64 [ 0, %entry ], [ %moved.next, %added ]
  %at = mul i64 %i, @USE_WORDS@
  %use = getelementptr i64, ptr %first, i64 %at
  %now = load i64, ptr %use
  %moved.next = add i64 %moved, %now
  %none = icmp eq i64 %now, 0
  br i1 %none, label %added, label %add
add:  ; sectors that the block requested again count once: at most those between the first and the last one
  %low.p = getelementptr i64, ptr %use, i64 1
  %high.p = getelementptr i64, ptr %use, i64 2
  %low = load i64, ptr %low.p
  %high = load i64, ptr %high.p
  %distance = sub i64 %high, %low
  %span = add i64 %distance, 1
  %is.less = icmp ult i64 %span, %now
  %own = select i1 %is.less, i64 %span, i64 %now
  %total.p = getelementptr i64, ptr %totals, i64 %at
  %own.p = getelementptr i64, ptr %total.p, i64 1
  %least.p = getelementptr i64, ptr %total.p, i64 2
  %most.p = getelementptr i64, ptr %total.p, i64 3
  %total.old = load i64, ptr %total.p
  %total.new = add i64 %total.old, %now
  store i64 %total.new, ptr %total.p
  %own.old = load i64, ptr %own.p
  %own.new = add i64 %own.old, %own
  store i64 %own.new, ptr %own.p
  %least.old = load i64, ptr %least.p
  %falls = icmp ult i64 %low, %least.old
  %least = select i1 %falls, i64 %low, i64 %least.old
  store i64 %least, ptr %least.p
  %most.old = load i64, ptr %most.p
  %rises = icmp ugt i64 %high, %most.old
  %most = select i1 %rises, i64 %high, i64 %most.old
  store i64 %most, ptr %most.p
  store i64 0, ptr %use
  store i64 -1, ptr %low.p
  store i64 0, ptr %high.p
  br label %added
added:
  %i.next = add i64 %i, 1
  %rest = icmp ult i64 %i.next, %halves
  br i1 %rest, label %each, label %out
out:  ; keep what the heaviest block did; the cache's time goes on by its size, so the next block finds it empty
  %heavy.p = getelementptr i64, ptr %work, i64 @SECTORS_MOST@
  %heavy = load i64, ptr %heavy.p
  %heavier = icmp ugt i64 %moved.next, %heavy
  %heaviest = select i1 %heavier, i64 %moved.next, i64 %heavy
  store i64 %heaviest, ptr %heavy.p
  %long.p = getelementptr i64, ptr %work, i64 @WORK_MOST@
  %long = load i64, ptr %long.p
  %done = load i64, ptr %uses
  %longer = icmp ugt i64 %done, %long
  %longest = select i1 %longer, i64 %done, i64 %long
  store i64 %longest, ptr %long.p
  store i64 0, ptr %uses
  store i64 0, %uses[@USES_TIME@]
  %cache = load ptr, %ctx[@CACHE@]
  %room = load i64, %cache[@CACHE_ROOM@]
  %time = load i64, ptr %cache
  %later = add i64 %time, %room
  %beyond = add i64 %later, 1
  store i64 %beyond, ptr %cache
  ret void
}
"""


def endings_text() -> str:
    """Return the functions, for the module of library/grid.py."""
    names = (
        "WORK COUNTS USES TOTALS BUFFERS CACHE REREADS WORK_BLOCKS WORK_HEAD WORK_LAST WORK_MOST SECTORS_MOST "
        "USES_HEAD USE_WORDS CACHE_ROOM"
    )
    values = {**numbers(names, context, traffic), "USES_TIME": USES_TIME}
    return filled(_TEXT, values) + thin_text()
