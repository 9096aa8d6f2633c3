# SPDX-License-Identifier: Apache-2.0
"""How warps and blocks of a launch take turns, in native code.

`block` runs the warps of one block by turns until each has ended: a warp returns at a barrier, and none goes on behind
it before all have come there. A warp that waits in a loop for others gives up its turn with a number above `YIELDS`.
"""

from __future__ import annotations

from verl_kernel.env.executor.library import context
from verl_kernel.env.executor.library.endings import endings_text

ENDED, YIELDS = -1, 1 << 24
"""What a warp returns when it has ended; what is added to the place at which it gives up its turn."""
DONE, WAITING, FAULTED = 0, 1, 2
"""What `block` returns."""

_TEXT = """
define i32 @vk_block(ptr %ctx, ptr %frames, ptr %states, i32 %x, i32 %y, i32 %z, i64 %id, i64 %rounds) nounwind {
entry:
  %fault.p = getelementptr i64, ptr %ctx, i64 @FAULT@
  %fault = load ptr, ptr %fault.p
  %entry.p = getelementptr i64, ptr %ctx, i64 @ENTRY@
  %warp = load ptr, ptr %entry.p
  %warps.p = getelementptr i64, ptr %ctx, i64 @WARPS@
  %warps = load i32, ptr %warps.p
  %frame.p = getelementptr i64, ptr %ctx, i64 @FRAME@
  %frame.bytes = load i32, ptr %frame.p
  br label %round
round:
  %left = phi i64 [ %rounds, %entry ], [ %left.next, %again ]
  br label %look
look:
  %l = phi i32 [ 0, %round ], [ %l.next, %look ]
  %some = phi i1 [ false, %round ], [ %some.next, %look ]
  %l.p = getelementptr i32, ptr %states, i32 %l
  %l.s = load i32, ptr %l.p
  %l.y = icmp sge i32 %l.s, @YIELDS@
  %some.next = or i1 %some, %l.y
  %l.next = add i32 %l, 1
  %l.more = icmp ult i32 %l.next, %warps
  br i1 %l.more, label %look, label %turn
turn:
  %w = phi i32 [ 0, %look ], [ %w.next, %skip ]
  %alive = phi i1 [ false, %look ], [ %alive.next, %skip ]
  %waits = phi i1 [ false, %look ], [ %waits.next, %skip ]
  %p = getelementptr i32, ptr %states, i32 %w
  %s = load i32, ptr %p
  %ended = icmp eq i32 %s, -1
  %yielded = icmp sge i32 %s, @YIELDS@
  %same = icmp eq i1 %yielded, %some.next
  %ended.not = xor i1 %ended, true
  %runs = and i1 %same, %ended.not
  br i1 %runs, label %run, label %skip
run:
  %place = select i1 %yielded, i32 @YIELDS@, i32 0
  %resume = sub i32 %s, %place
  %offset = mul i32 %w, %frame.bytes
  %frame = getelementptr i8, ptr %frames, i32 %offset
  %got = call i32 %warp(ptr %ctx, ptr %frame, i32 %w, i32 %x, i32 %y, i32 %z, i32 %resume)
  store i32 %got, ptr %p
  %kind = load i64, ptr %fault
  %bad = icmp ne i64 %kind, 0
  br i1 %bad, label %faulted, label %skip
skip:
  %now = phi i32 [ %s, %turn ], [ %got, %run ]
  %lives = icmp ne i32 %now, -1
  %alive.next = or i1 %alive, %lives
  %still = icmp sge i32 %now, @YIELDS@
  %waits.next = or i1 %waits, %still
  %w.next = add i32 %w, 1
  %more = icmp ult i32 %w.next, %warps
  br i1 %more, label %turn, label %rest
rest:
  br i1 %alive.next, label %again, label %finished
again:
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
faulted:
  %b.p = getelementptr i64, ptr %fault, i64 @BLOCK@
  store i64 %id, ptr %b.p
  %w.p = getelementptr i64, ptr %fault, i64 @WARP@
  %w.l = zext i32 %w to i64
  store i64 %w.l, ptr %w.p
  ret i32 @FAULTED@
}

define i64 @vk_grid(ptr %ctx, ptr %frames, ptr %states, ptr %order, i64 %count, i32 %gx, i32 %gy) nounwind {
entry:
  %shared.p = getelementptr i64, ptr %ctx, i64 @SHARED@
  %shared = load ptr, ptr %shared.p
  %length.p = getelementptr i64, ptr %ctx, i64 @SHARED_BYTES@
  %length = load i64, ptr %length.p
  %warps.p = getelementptr i64, ptr %ctx, i64 @WARPS@
  %warps = load i64, ptr %warps.p
  %state.bytes = mul i64 %warps, 4
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i.next, %ran ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %start, label %out
start:
  %id.p = getelementptr i64, ptr %order, i64 %i
  %id = load i64, ptr %id.p
  %id32 = trunc i64 %id to i32
  %x = urem i32 %id32, %gx
  %r = udiv i32 %id32, %gx
  %y = urem i32 %r, %gy
  %z = udiv i32 %r, %gy
  call void @llvm.memset.p0.i64(ptr %shared, i8 -1, i64 %length, i1 false)
  call void @llvm.memset.p0.i64(ptr %states, i8 0, i64 %state.bytes, i1 false)
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
"""


def grid_text() -> str:
    """The module that holds both."""
    values = {
        "FAULT": context.FAULT, "SHARED": context.SHARED, "SHARED_BYTES": context.SHARED_BYTES, "BLOCK": context.BLOCK,
        "WARP": context.WARP, "YIELDS": YIELDS, "ENTRY": context.ENTRY, "WARPS": context.WARPS, "FRAME": context.FRAME,
        "ALWAYS": 2**63 - 1, "DONE": DONE, "WAITING": WAITING, "FAULTED": FAULTED,
    }  # fmt: skip
    text = _TEXT
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    return text + endings_text()
