# SPDX-License-Identifier: Apache-2.0
"""Records accesses while a launch runs, to find races; unclear cases are passed to the function at `context.CALL`."""

from __future__ import annotations

from functools import partial

from verl_kernel.env.emulator.library import context
from verl_kernel.env.emulator.library.accesses import gathered
from verl_kernel.env.emulator.library.context import POINTERS, FunctionWriter
from verl_kernel.env.emulator.lowering.writer import LANES, WIDE, Key

ADDRESSES = WIDE.ints(64)
VERBS = {
    "load": context.LOAD,
    "store": context.STORE,
    "atomic": context.ATOMIC,
    "strong_load": context.STRONG_LOAD,
    "block_atomic": context.BLOCK_ATOMIC,
}
"""The reason for which the judging function is called, by the verb of the access."""


def watch_text(key: Key) -> tuple[FunctionWriter, str]:
    """`watch_<room>_<verb>_<bits>_<count>(addresses, lanes, ctx, site[, values...])`: record an access."""
    room, verb, bits, count = str(key[1]), str(key[2]), int(key[3]), int(key[4])
    body, size = FunctionWriter(), bits * count // 8
    width = 32 if room == "shared" else 64
    kind = WIDE.ints(width)
    body.do(f"%kept = alloca {ADDRESSES}, align 64")
    if verb == "store":
        body.do(f"%new = alloca [{count} x {WIDE.ints(bits)}], align 64")
    # Misaligned lanes would lie in several cells; they are faults of their own (`checks.check_alignment`).
    low = body.op(f"and {kind} %addresses, {WIDE.const(width, size - 1)}")
    aligned = body.op(f"and i32 {body.bits(body.op(f'icmp eq {kind} {low}, zeroinitializer'))}, %lanes")
    body.do(f"%watch = load ptr, ptr {body.word('%ctx', context.WATCH)}")
    warp = body.op(f"load i64, ptr {body.word('%watch', context.RUNNING_WARP)}")
    undecided = (
        _in_shared(body, verb, size, aligned, warp) if room == "shared" else _in_rows(body, verb, size, aligned, warp)
    )
    body.begin_unless(body.op(f"icmp eq i32 {undecided}, 0"), "fine", "odd")
    wide = body.op(f"zext {kind} %addresses to {ADDRESSES}") if width == 32 else "%addresses"
    # The judging function reads addresses and new values from memory.
    body.do(f"store {ADDRESSES} {wide}, ptr %kept")
    for index in range(count if verb == "store" else 0):
        slot = body.op(f"getelementptr {WIDE.ints(bits)}, ptr %new, i32 {index}")
        body.do(f"store {WIDE.ints(bits)} %x{index}, ptr {slot}")
    reason = VERBS[verb] + (context.IN_SHARED if room == "shared" else 0)
    _call_judge(body, str(reason), undecided, str(size | bits << 16), "%new" if verb == "store" else "null")
    body.fall_into("fine")
    body.do("ret void")
    arguments = [f"{kind} %addresses", "i32 %lanes", "ptr %ctx", "ptr %site"]
    arguments += [f"{WIDE.ints(bits)} %x{index}" for index in range(count)] if verb == "store" else []
    return body, body.text("void", key, arguments)


def _call_judge(body: FunctionWriter, reason: str, lanes: str, size: str, values: str) -> None:
    """Call the judging function."""
    call = body.op(f"load ptr, ptr {body.word('%watch', context.CALL)}")
    wide = body.op(f"zext i32 {lanes} to i64")
    body.do(f"call void {call}(i64 {reason}, i64 {wide}, ptr %kept, i64 {size}, ptr {values}, ptr %ctx, ptr %site)")


def _in_shared(body: FunctionWriter, verb: str, size: int, lanes: str, warp: str) -> str:
    """Record an access to shared memory, if that is watched; returns the lanes to be judged."""
    row = body.op(f"load ptr, ptr {body.word('%watch', context.SHARED_ROW)}")
    # A block of one warp has no races in shared memory.
    body.begin_unless(body.op(f"icmp eq ptr {row}, null"), "fine", "row")
    own_stamp = _stamp(body, context.SHARED_IDS, warp)
    shift = body.op(f"load i64, ptr {body.word('%watch', context.SHARED_SHIFT)}")
    offsets = body.op(f"zext {WIDE.ints(32)} %addresses to {ADDRESSES}")
    return _each_cell(
        body,
        verb,
        size,
        is_ordered=False,
        shift=shift,
        offsets=offsets,
        lanes=lanes,
        row=row,
        warp_state=("0", own_stamp, "null", "0"),
        begin="row",
    )


def _stamp(body: FunctionWriter, word: int, warp: str) -> str:
    ids = body.op(f"load ptr, ptr {body.word('%watch', word)}")
    return body.op(f"load i32, ptr {body.op(f'getelementptr i32, ptr {ids}, i64 {warp}')}")


def _each_cell(
    body: FunctionWriter,
    verb: str,
    size: int,
    *,
    is_ordered: bool,
    shift: str,
    offsets: str,
    lanes: str,
    row: str,
    warp_state: tuple[str, str, str, str],
    begin: str,
) -> str:
    """Loop over the cells of each lane; continues in the block `cells_done<tag>`."""
    tag = int(is_ordered)
    first = body.op(f"lshr {ADDRESSES} {offsets}, {body.splat('i64', shift)}")
    # Accesses are aligned and cells no longer than the smallest, so each access covers whole cells.
    count = body.op(f"lshr i64 {size}, {shift}")
    body.fall_into(f"cell{tag}")
    body.do(f"%place{tag} = phi i64 [ 0, %{begin} ], [ %next_place{tag}, %cell{tag} ]")
    body.do(f"%odd{tag} = phi i32 [ 0, %{begin} ], [ %more_odd{tag}, %cell{tag} ]")
    cells = body.op(f"add {ADDRESSES} {first}, {body.splat('i64', f'%place{tag}')}")
    start, own_stamp, clock, entity = warp_state
    undecided = body.op(
        body.call(
            "i32",
            ("cells", verb, is_ordered),
            f"{ADDRESSES} {cells}",
            f"i32 {lanes}",
            f"ptr {row}",
            f"i32 {start}",
            f"i32 {own_stamp}",
            "ptr %watch",
            f"ptr {clock}",
            f"i32 {entity}",
        )
    )
    body.do(f"%more_odd{tag} = or i32 %odd{tag}, {undecided}")
    body.do(f"%next_place{tag} = add i64 %place{tag}, 1")
    body.begin_unless(body.op(f"icmp ult i64 %next_place{tag}, {count}"), f"cell{tag}", f"cells_done{tag}")
    return f"%more_odd{tag}"


def _in_rows(body: FunctionWriter, verb: str, size: int, lanes: str, warp: str) -> str:
    """Record an access to global memory; returns the lanes to be judged."""
    own_stamp = _stamp(body, context.IDS, warp)
    rows, count, shift, ordered, first = (
        body.op(f"load {kind}, ptr {body.word('%watch', word)}")
        for word, kind in (
            (context.ROWS, "ptr"),
            (context.ROW_COUNT, "i64"),
            (context.SHIFT, "i64"),
            (context.IS_ORDERED, "i64"),
            (context.FIRST, "i64"),
        )
    )
    start = body.op(f"trunc i64 {first} to i32")
    is_ordered = body.op(f"icmp ne i64 {ordered}, 0")
    body.fall_into("rows")
    body.do("%number = phi i64 [ 0, %entry ], [ %next_number, %next_row ]")
    body.do(f"%left = phi i32 [ {lanes}, %entry ], [ %left_after, %next_row ]")
    body.do("%bad = phi i32 [ 0, %entry ], [ %bad_after, %next_row ]")
    has_more = body.op(f"icmp ult i64 %number, {count}")
    body.begin_if(body.op(f"and i1 {has_more}, {body.op('icmp ne i32 %left, 0')}"), "row", "rows_done")
    row = body.op(f"getelementptr i64, ptr {rows}, i64 {body.op(f'mul i64 %number, {context.WATCH_ROW_WORDS}')}")
    begin, length = (
        body.splat("i64", body.op(f"load i64, ptr {body.word(row, word)}"))
        for word in (context.CELLS_START, context.CELLS_SIZE)
    )
    offsets = body.op(f"sub {ADDRESSES} %addresses, {begin}")
    # Lanes of one access may lie in several watched ranges, or in none.
    lanes_inside = body.op(f"and i32 %left, {body.bits(body.op(f'icmp ult {ADDRESSES} {offsets}, {length}'))}")
    body.begin_unless(body.op(f"icmp eq i32 {lanes_inside}, 0"), "next_row", "here")
    body.begin_unless(is_ordered, "ordered", "plain")
    each_cell = partial(_each_cell, body, verb, size, shift=shift, offsets=offsets, lanes=lanes_inside, row=row)
    plain = each_cell(is_ordered=False, warp_state=(start, own_stamp, "null", "0"), begin="plain")
    body.do("br label %next_row")
    body.label("ordered")
    clock = body.op(f"load ptr, ptr {body.word('%watch', context.CLOCKS)}")
    clock = body.op(f"load ptr, ptr {body.op(f'getelementptr ptr, ptr {clock}, i64 {warp}')}")
    stamp = body.op(f"zext i32 {own_stamp} to i64")
    used = body.op(f"load ptr, ptr {body.word('%watch', context.USED)}")
    # Clocks are compared only with stamps that accessed memory (`Stamps.latest`).
    body.do(f"store i8 1, ptr {body.op(f'getelementptr i8, ptr {used}, i64 {stamp}')}")
    owners = body.op(f"load ptr, ptr {body.word('%watch', context.OWNERS)}")
    entity = body.op(f"load i32, ptr {body.op(f'getelementptr i32, ptr {owners}, i64 {stamp}')}")
    ordered = each_cell(is_ordered=True, warp_state=(start, own_stamp, clock, entity), begin="ordered")
    body.fall_into("next_row")
    undecided = body.op(f"phi i32 [ 0, %row ], [ {plain}, %cells_done0 ], [ {ordered}, %cells_done1 ]")
    body.do(f"%bad_after = or i32 %bad, {undecided}")
    body.do(f"%left_after = and i32 %left, {body.op(f'xor i32 {lanes_inside}, -1')}")
    body.do("%next_number = add i64 %number, 1")
    body.do("br label %rows")
    body.label("rows_done")
    return "%bad"


def order_text(key: Key) -> tuple[FunctionWriter, str]:
    """`order_<marks>(addresses, lanes, ctx, site)`: report what may order blocks, if races are watched."""
    body = FunctionWriter()
    body.do(f"%kept = alloca {ADDRESSES}, align 64")
    body.do(f"%watch = load ptr, ptr {body.word('%ctx', context.WATCH)}")
    # Python is called for each event: not for those of no lane.
    has_no_lane = body.op("icmp eq i32 %lanes, 0")
    body.begin_unless(body.op(f"or i1 {has_no_lane}, {body.op('icmp eq ptr %watch, null')}"), "done", "tell")
    body.do(f"store {ADDRESSES} %addresses, ptr %kept")
    _call_judge(body, str(context.EVENT + 16 * int(key[1])), "%lanes", "0", "null")
    body.fall_into("done")
    body.do("ret void")
    return body, body.text("void", key, (f"{ADDRESSES} %addresses", "i32 %lanes", "ptr %ctx", "ptr %site"))


def log_text(key: Key) -> tuple[FunctionWriter, str]:
    """`log_<verb>_<bits>_<count>(addresses, lanes, ctx, site)`: add a record to the log, if it is not full."""
    verb, bits, count = str(key[1]), int(key[2]), int(key[3])
    body = FunctionWriter()
    watch = body.context(context.WATCH)
    log = body.op(f"load ptr, ptr {body.word(watch, context.LOG)}")
    used = body.op(f"load i64, ptr {body.word(log, context.LOG_USED)}")
    room = body.op(f"load i64, ptr {body.word(log, context.LOG_ROOM)}")
    has_lane = body.op("icmp ne i32 %lanes, 0")
    body.begin_if(body.op(f"and i1 {has_lane}, {body.op(f'icmp ult i64 {used}, {room}')}"), "record", "done")
    body.do(f"store i64 {body.op(f'add i64 {used}, 1')}, ptr {body.word(log, context.LOG_USED)}")
    offset = body.op(f"add i64 {body.op(f'mul i64 {used}, {context.RECORD_WORDS}')}, {context.LOG_HEAD}")
    record = body.op(f"getelementptr i64, ptr {log}, i64 {offset}")
    values = {
        context.RECORD_SITE: body.op("ptrtoint ptr %site to i64"),
        context.RECORD_LANES: body.op("zext i32 %lanes to i64"),
        context.RECORD_KIND: str(VERBS[verb] | bits << 8 | count << 16),
        context.RECORD_WARP: body.op(f"load i64, ptr {body.word(watch, context.RUNNING_WARP)}"),
    }
    for word, value in values.items():
        body.do(f"store i64 {value}, ptr {body.word(record, word)}")
    body.do(f"store {ADDRESSES} %addresses, ptr {body.word(record, context.RECORD_ADDRESSES)}, align 8")
    _log_values(body, bits, count, body.word(record, context.RECORD_VALUES))
    body.fall_into("done")
    body.do("ret void")
    return body, body.text("void", key, (f"{ADDRESSES} %addresses", "i32 %lanes", "ptr %ctx", "ptr %site"))


def _log_values(body: FunctionWriter, bits: int, count: int, target: str) -> None:
    """Log what memory holds at the lanes' addresses, register by register."""
    pointers, mask = body.op(f"inttoptr {ADDRESSES} %addresses to {POINTERS}"), body.mask("%lanes")
    for index in range(count):
        pointers_here = (
            body.op(f"getelementptr i8, {POINTERS} {pointers}, i64 {index * bits // 8}") if index else pointers
        )
        value = gathered(body, pointers_here, mask, bits)
        slot = body.op(f"getelementptr i8, ptr {target}, i64 {index * bits // 8 * LANES}")
        body.do(f"store {WIDE.ints(bits)} {value}, ptr {slot}, align 8")
