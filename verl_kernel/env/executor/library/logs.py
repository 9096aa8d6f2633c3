# SPDX-License-Identifier: Apache-2.0
"""Writes down accesses to global memory while a block runs, with what lay there before."""

from __future__ import annotations

from verl_kernel.env.executor.library import context
from verl_kernel.env.executor.library.accesses import gathered
from verl_kernel.env.executor.library.function import POINTERS, Function
from verl_kernel.env.executor.library.watching import ADDRESSES, VERBS
from verl_kernel.env.executor.lowering.writer import LANES, WIDE, Key


def log_text(key: Key) -> tuple[Function, str]:
    """`log_<verb>_<bits>_<count>(addresses, lanes, ctx, site)`: add a record to the log, if it has room."""
    verb, bits, count = str(key[1]), int(key[2]), int(key[3])
    made = Function()
    watch = made.context(context.WATCH)
    log = made.op(f"load ptr, ptr {made.word(watch, context.LOG)}")
    used = made.op(f"load i64, ptr {made.word(log, context.LOG_USED)}")
    room = made.op(f"load i64, ptr {made.word(log, context.LOG_ROOM)}")
    some = made.op("icmp ne i32 %lanes, 0")
    made.branch(made.op(f"and i1 {some}, {made.op(f'icmp ult i64 {used}, {room}')}"), "record", "done")
    made.label("record")
    made.do(f"store i64 {made.op(f'add i64 {used}, 1')}, ptr {made.word(log, context.LOG_USED)}")
    place = made.op(f"add i64 {made.op(f'mul i64 {used}, {context.RECORD_WORDS}')}, {context.LOG_HEAD}")
    record = made.op(f"getelementptr i64, ptr {log}, i64 {place}")
    values = {
        context.RECORD_SITE: made.op("ptrtoint ptr %site to i64"),
        context.RECORD_LANES: made.op("zext i32 %lanes to i64"),
        context.RECORD_KIND: str(VERBS[verb] | bits << 8 | count << 16),
        context.RECORD_WARP: made.op(f"load i64, ptr {made.word(watch, context.WARP_NOW)}"),
    }
    for word, value in values.items():
        made.do(f"store i64 {value}, ptr {made.word(record, word)}")
    made.do(f"store {ADDRESSES} %addresses, ptr {made.word(record, context.RECORD_PLACES)}, align 8")
    _keep(made, bits, count, made.word(record, context.RECORD_VALUES))
    made.do("br label %done")
    made.label("done")
    made.do("ret void")
    return made, made.text("void", key, (f"{ADDRESSES} %addresses", "i32 %lanes", "ptr %ctx", "ptr %site"))


def _keep(made: Function, bits: int, count: int, target: str) -> None:
    """Write down what lies at lanes' addresses, register by register."""
    pointers, mask = made.op(f"inttoptr {ADDRESSES} %addresses to {POINTERS}"), made.mask("%lanes")
    for place in range(count):
        there = made.op(f"getelementptr i8, {POINTERS} {pointers}, i64 {place * bits // 8}") if place else pointers
        value = gathered(made, there, mask, bits)
        kept = made.op(f"getelementptr i8, ptr {target}, i64 {place * bits // 8 * LANES}")
        made.do(f"store {WIDE.ints(bits)} {value}, ptr {kept}, align 8")
