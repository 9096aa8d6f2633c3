# SPDX-License-Identifier: Apache-2.0
"""Schedules warps and blocks of a launch, in native code.

`block` runs the warps of one block in rounds until each has ended: a warp returns at a barrier, and none continues
after it before all have reached it. A warp that waits in a loop for others returns a number above `YIELDS`.
"""

from __future__ import annotations

from verl_kernel.env.emulator.library import context
from verl_kernel.env.emulator.library.block_totals import endings_text
from verl_kernel.env.emulator.library.context import filled, numbers

# Above any number of a block of instructions, so that one return value tells both.
ENDED, YIELDS = -1, 1 << 24
"""What a warp returns when it has ended; what is added to the number of the block at which a waiting warp resumes."""
# `Watch.parts` takes memory for as many vector clocks, and orders turn round as many blocks at once.
RESIDENT = 1024
"""How many blocks run at once if blocks may wait for each other."""
DONE, WAITING, FAULTED = 0, 1, 2
"""What `block` returns."""

# A round runs each warp that can go on once. A warp's state is what its function has returned: -1 when
# it has ended, the block of instructions after a barrier, or that and `YIELDS` if it waits in a loop.
_TEXT = """
define i32 @vk_block(ptr %ctx, ptr %frames, ptr %states, i32 %x, i32 %y, i32 %z, i64 %id, i64 %rounds) nounwind {
entry:
  store i64 %id, %ctx[@NUMBER@]
  %fault = load ptr, %ctx[@FAULT@]
  %warp = load ptr, %ctx[@ENTRY@]
  %warps = load i32, %ctx[@WARPS@]
  %frame.bytes = load i32, %ctx[@FRAME@]
  br label %round
round:
  %left = phi i64 [ %rounds, %entry ], [ %left.next, %again ]
  br label %look
look:  ; does a warp wait in a loop?
  %l = phi i32 [ 0, %round ], [ %l.next, %look ]
  %some = phi i1 [ false, %round ], [ %some.next, %look ]
  %l.p = getelementptr i32, ptr %states, i32 %l
  %l.s = load i32, ptr %l.p
  %l.y = icmp sge i32 %l.s, @YIELDS@
  %some.next = or i1 %some, %l.y
  %l.next = add i32 %l, 1
  %l.more = icmp ult i32 %l.next, %warps
  br i1 %l.more, label %look, label %began
began:  ; if not, all warps stand at a barrier, at the start or at the end: a watch gives new stamps
  %watch = load ptr, %ctx[@WATCH@]
  %is.watched = icmp ne ptr %watch, null
  %some.not = xor i1 %some.next, true
  %passed = and i1 %is.watched, %some.not
  br i1 %passed, label %barrier, label %turns
barrier:
  call void @vk_barrier(ptr %ctx, ptr %watch, i32 %warps)
  br label %turns
turns:  ; if one does, only such warps run in this round, else all that have not ended
  br label %turn
turn:
  %w = phi i32 [ 0, %turns ], [ %w.next, %skip ]
  %alive = phi i1 [ false, %turns ], [ %alive.next, %skip ]
  %waits = phi i1 [ false, %turns ], [ %waits.next, %skip ]
  %p = getelementptr i32, ptr %states, i32 %w
  %s = load i32, ptr %p
  %ended = icmp eq i32 %s, -1
  %yielded = icmp sge i32 %s, @YIELDS@
  %same = icmp eq i1 %yielded, %some.next
  %ended.not = xor i1 %ended, true
  %runs = and i1 %same, %ended.not
  br i1 %runs, label %run, label %skip
run:  ; a warp resumes at the block of instructions that it has returned
  %place = select i1 %yielded, i32 @YIELDS@, i32 0
  %resume = sub i32 %s, %place
  %offset = mul i32 %w, %frame.bytes
  %frame = getelementptr i8, ptr %frames, i32 %offset
  br i1 %is.watched, label %name, label %go
name:  ; a watch has to know whose accesses it sees
  %w.64 = zext i32 %w to i64
  store i64 %w.64, %watch[@RUNNING_WARP@]
  br label %go
go:
  %got = call i32 %warp(ptr %ctx, ptr %frame, i32 %w, i32 %x, i32 %y, i32 %z, i32 %resume)
  store i32 %got, ptr %p
  %kind = load i64, ptr %fault
  %bad = icmp ne i64 %kind, 0
  br i1 %bad, label %faulted, label %skip
skip:
  %now = phi i32 [ %s, %turn ], [ %got, %go ]
  %lives = icmp ne i32 %now, -1
  %alive.next = or i1 %alive, %lives
  %still = icmp sge i32 %now, @YIELDS@
  %waits.next = or i1 %waits, %still
  %w.next = add i32 %w, 1
  %more = icmp ult i32 %w.next, %warps
  br i1 %more, label %turn, label %rest
rest:
  br i1 %alive.next, label %again, label %finished
again:  ; pause where a warp waits for others, or after some rounds
  %left.next = sub i64 %left, 1
  %spent = icmp sle i64 %left.next, 0
  %stop = or i1 %waits.next, %spent
  br i1 %stop, label %waiting, label %round
finished:
  call void @vk_finish(ptr %ctx)
  ret i32 @DONE@
waiting:
  call void @vk_settle(ptr %ctx)
  ret i32 @WAITING@
faulted:  ; native code has noted what happened: here is who did it
  store i64 %id, %fault[@BLOCK@]
  %w.l = zext i32 %w to i64
  store i64 %w.l, %fault[@WARP@]
  ret i32 @FAULTED@
}

define i64 @vk_grid(ptr %ctx, ptr %frames, ptr %states, ptr %order, i64 %count, i32 %gx, i32 %gy) nounwind {
entry:
  %shared = load ptr, %ctx[@SHARED@]
  %length = load i64, %ctx[@SHARED_BYTES@]
  %warps = load i64, %ctx[@WARPS@]
  %state.bytes = mul i64 %warps, 4
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i.next, %ran ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %start, label %out
start:  ; the number of a block gives its coordinates, x first; shared memory holds NaN
  %id.p = getelementptr i64, ptr %order, i64 %i
  %id = load i64, ptr %id.p
  %id32 = trunc i64 %id to i32
  %x = urem i32 %id32, %gx
  %r = udiv i32 %id32, %gx
  %y = urem i32 %r, %gy
  %z = udiv i32 %r, %gy
  call void @llvm.memset.p0.i64(ptr %shared, i8 -1, i64 %length, i1 false)
  call void @llvm.memset.p0.i64(ptr %states, i8 0, i64 %state.bytes, i1 false)
  %watch = load ptr, %ctx[@WATCH@]
  %is.watched = icmp ne ptr %watch, null
  br i1 %is.watched, label %tell, label %go
tell:  ; a watch gives the block its first stamps at once
  store i64 1, %watch[@IS_FRESH@]
  store i64 %i, %watch[@BLOCK_INDEX@]
  br label %go
go:
  %got = call i32 @vk_block(ptr %ctx, ptr %frames, ptr %states, i32 %x, i32 %y, i32 %z, i64 %id, i64 @ALWAYS@)
  %bad = icmp ne i32 %got, @DONE@
  br i1 %bad, label %out, label %ran
ran:
  %i.next = add i64 %i, 1
  br label %next
out:
  ret i64 %i
}
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define internal void @vk_barrier(ptr %ctx, ptr %watch, i32 %warps) nounwind {
entry:
  %ordered = load i64, %watch[@IS_ORDERED@]
  %is.ordered = icmp ne i64 %ordered, 0
  br i1 %is.ordered, label %learn, label %plain
learn:  ; vector clocks are joined by the judging function
  %call = load ptr, %watch[@CALL@]
  call void %call(i64 @BARRIER@, i64 0, ptr null, i64 0, ptr null, ptr %ctx, ptr null)
  ret void
plain:  ; else each barrier takes the next stamps, one for each warp
  %clock.p = load ptr, %watch[@NEXT_STAMP@]
  %clock = load i64, ptr %clock.p
  %warps.64 = zext i32 %warps to i64
  %next = add i64 %clock, %warps.64
  %is.over = icmp uge i64 %next, @LOW@
  br i1 %is.over, label %lost, label %fine
lost:  ; stamps are used up, so the watch ends
  store i64 1, %watch[@IS_LOST@]
  store i64 0, %ctx[@WATCH@]
  ret void
fine:
  store i64 %next, ptr %clock.p
  store i64 %clock, %watch[@BARRIER_STAMP@]
  %fresh.p = getelementptr i64, ptr %watch, i64 @IS_FRESH@
  %fresh = load i64, ptr %fresh.p
  %is.fresh = icmp ne i64 %fresh, 0
  br i1 %is.fresh, label %begin, label %each
begin:  ; the first stamp of each block tells later whose a stamp is
  store i64 0, ptr %fresh.p
  store i64 %clock, %watch[@FIRST@]
  %place = load i64, %watch[@BLOCK_INDEX@]
  %starts = load ptr, %watch[@STARTS@]
  %start.p = getelementptr i64, ptr %starts, i64 %place
  store i64 %clock, ptr %start.p
  br label %each
each:
  %ids = load ptr, %watch[@IDS@]
  %shared.ids = load ptr, %watch[@SHARED_IDS@]
  %step.64 = load i64, %watch[@ID_STEP@]
  %step = trunc i64 %step.64 to i32
  %first = trunc i64 %clock to i32
  br label %give
give:  ; a step of 0 makes the warps share a stamp for global memory
  %w = phi i32 [ 0, %each ], [ %w.next, %give ]
  %part = mul i32 %step, %w
  %id = add i32 %first, %part
  %id.p = getelementptr i32, ptr %ids, i32 %w
  store i32 %id, ptr %id.p
  %shared.id = add i32 %first, %w
  %shared.id.p = getelementptr i32, ptr %shared.ids, i32 %w
  store i32 %shared.id, ptr %shared.id.p
  %w.next = add i32 %w, 1
  %more = icmp ult i32 %w.next, %warps
  br i1 %more, label %give, label %out
out:
  ret void
}
"""

_WATCH = (
    "WATCH RUNNING_WARP IS_FRESH BLOCK_INDEX IS_ORDERED CALL NEXT_STAMP LOW IS_LOST BARRIER_STAMP FIRST STARTS IDS "
    "SHARED_IDS ID_STEP"
)
"""Words of a watch that the text names."""


def grid_text() -> str:
    """Return the module that holds `vk_block` and `vk_grid`."""
    words = "FAULT SHARED SHARED_BYTES BLOCK WARP ENTRY WARPS FRAME BARRIER NUMBER"
    values = {
        **numbers(f"{words} {_WATCH}", context),
        # Where no block waits for others, each runs to its end at once.
        "ALWAYS": 2**63 - 1,
        "YIELDS": YIELDS,
        "DONE": DONE,
        "WAITING": WAITING,
        "FAULTED": FAULTED,
    }
    return filled(_TEXT, values) + endings_text()
