# SPDX-License-Identifier: Apache-2.0
"""Records accesses while a launch runs, to find races; unclear cases are passed to the function at `context.CALL`."""

from __future__ import annotations

from verl_kernel.env.executor.library import context
from verl_kernel.env.executor.library.accesses import gathered
from verl_kernel.env.executor.library.context import POINTERS, Function
from verl_kernel.env.executor.lowering.writer import LANES, WIDE, Key

ADDRESSES = WIDE.ints(64)
VERBS = {
    "load": context.LOAD, "store": context.STORE, "atomic": context.ATOMIC, "strong_load": context.STRONG_LOAD,
    "block_atomic": context.BLOCK_ATOMIC,
}  # fmt: skip


def watch_text(key: Key) -> tuple[Function, str]:
    """`watch_<room>_<verb>_<bits>_<count>(addresses, lanes, ctx, site[, values...])`: record an access."""
    room, verb, bits, count = str(key[1]), str(key[2]), int(key[3]), int(key[4])
    made, size = Function(), bits * count // 8
    width = 32 if room == "shared" else 64
    kind = WIDE.ints(width)
    made.do(f"%kept = alloca {ADDRESSES}, align 64")
    if verb == "store":
        made.do(f"%new = alloca [{count} x {WIDE.ints(bits)}], align 64")
    low = made.op(f"and {kind} %addresses, {WIDE.const(width, size - 1)}")
    aligned = made.op(f"and i32 {made.bits(made.op(f'icmp eq {kind} {low}, zeroinitializer'))}, %lanes")
    made.do(f"%watch = load ptr, ptr {made.word('%ctx', context.WATCH)}")
    warp = made.op(f"load i64, ptr {made.word('%watch', context.WARP_NOW)}")
    bad = _in_shared(made, verb, size, aligned, warp) if room == "shared" else _in_rows(made, verb, size, aligned, warp)
    made.branch(made.op(f"icmp eq i32 {bad}, 0"), "fine", "odd")
    made.label("odd")
    wide = made.op(f"zext {kind} %addresses to {ADDRESSES}") if width == 32 else "%addresses"
    made.do(f"store {ADDRESSES} {wide}, ptr %kept")
    for place in range(count if verb == "store" else 0):
        there = made.op(f"getelementptr {WIDE.ints(bits)}, ptr %new, i32 {place}")
        made.do(f"store {WIDE.ints(bits)} %x{place}, ptr {there}")
    what = VERBS[verb] + (context.IN_SHARED if room == "shared" else 0)
    _ask(made, str(what), bad, str(size | bits << 16), "%new" if verb == "store" else "null")
    made.do("br label %fine")
    made.label("fine")
    made.do("ret void")
    arguments = [f"{kind} %addresses", "i32 %lanes", "ptr %ctx", "ptr %site"]
    arguments += [f"{WIDE.ints(bits)} %x{place}" for place in range(count)] if verb == "store" else []
    return made, made.text("void", key, arguments)


def _ask(made: Function, what: str, lanes: str, size: str, values: str) -> None:
    """Call the judging function."""
    call = made.op(f"load ptr, ptr {made.word('%watch', context.CALL)}")
    wide = made.op(f"zext i32 {lanes} to i64")
    made.do(f"call void {call}(i64 {what}, i64 {wide}, ptr %kept, i64 {size}, ptr {values}, ptr %ctx, ptr %site)")


def _in_shared(made: Function, verb: str, size: int, lanes: str, warp: str) -> str:
    """Record an access to shared memory, if that is watched; returns the lanes to be judged."""
    row = made.op(f"load ptr, ptr {made.word('%watch', context.SHARED_ROW)}")
    made.branch(made.op(f"icmp eq ptr {row}, null"), "fine", "row")
    made.label("row")
    me = _stamp(made, context.SHARED_IDS, warp)
    shift = made.op(f"load i64, ptr {made.word('%watch', context.SHARED_SHIFT)}")
    offsets = made.op(f"zext {WIDE.ints(32)} %addresses to {ADDRESSES}")
    return _each_cell(made, verb, False, size, shift, offsets, lanes, row, ("0", me, "null", "0"), "row")


def _stamp(made: Function, word: int, warp: str) -> str:
    ids = made.op(f"load ptr, ptr {made.word('%watch', word)}")
    return made.op(f"load i32, ptr {made.op(f'getelementptr i32, ptr {ids}, i64 {warp}')}")


def _each_cell(
    made: Function, verb: str, is_ordered: bool, size: int, shift: str, offsets: str, lanes: str, row: str,
    who: tuple[str, str, str, str], begin: str,
) -> str:  # fmt: skip
    """Loop over the cells of each lane; continues in the block `cells_done<tag>`."""
    tag = int(is_ordered)
    first = made.op(f"lshr {ADDRESSES} {offsets}, {made.splat('i64', shift)}")
    count = made.op(f"lshr i64 {size}, {shift}")
    made.do(f"br label %cell{tag}")
    made.label(f"cell{tag}")
    made.do(f"%place{tag} = phi i64 [ 0, %{begin} ], [ %next_place{tag}, %cell{tag} ]")
    made.do(f"%odd{tag} = phi i32 [ 0, %{begin} ], [ %more_odd{tag}, %cell{tag} ]")
    cells = made.op(f"add {ADDRESSES} {first}, {made.splat('i64', f'%place{tag}')}")
    start, me, known, entity = who
    odd = made.op(
        made.call(
            "i32", ("cells", verb, is_ordered), f"{ADDRESSES} {cells}", f"i32 {lanes}", f"ptr {row}", f"i32 {start}",
            f"i32 {me}", "ptr %watch", f"ptr {known}", f"i32 {entity}",
        )
    )  # fmt: skip
    made.do(f"%more_odd{tag} = or i32 %odd{tag}, {odd}")
    made.do(f"%next_place{tag} = add i64 %place{tag}, 1")
    made.branch(made.op(f"icmp ult i64 %next_place{tag}, {count}"), f"cell{tag}", f"cells_done{tag}")
    made.label(f"cells_done{tag}")
    return f"%more_odd{tag}"


def _in_rows(made: Function, verb: str, size: int, lanes: str, warp: str) -> str:
    """Record an access to global memory; returns the lanes to be judged."""
    me = _stamp(made, context.IDS, warp)
    rows, count, shift, ordered, first = (
        made.op(f"load {kind}, ptr {made.word('%watch', word)}")
        for word, kind in (
            (context.ROWS, "ptr"), (context.ROW_COUNT, "i64"), (context.SHIFT, "i64"), (context.IS_ORDERED, "i64"),
            (context.FIRST, "i64"),
        )
    )  # fmt: skip
    start = made.op(f"trunc i64 {first} to i32")
    is_ordered = made.op(f"icmp ne i64 {ordered}, 0")
    made.do("br label %rows")
    made.label("rows")
    made.do("%number = phi i64 [ 0, %entry ], [ %next_number, %next_row ]")
    made.do(f"%left = phi i32 [ {lanes}, %entry ], [ %left_after, %next_row ]")
    made.do("%bad = phi i32 [ 0, %entry ], [ %bad_after, %next_row ]")
    more = made.op(f"icmp ult i64 %number, {count}")
    made.branch(made.op(f"and i1 {more}, {made.op('icmp ne i32 %left, 0')}"), "row", "rows_done")
    made.label("row")
    row = made.op(f"getelementptr i64, ptr {rows}, i64 {made.op(f'mul i64 %number, {context.WATCH_ROW_WORDS}')}")
    begin, length = (
        made.splat("i64", made.op(f"load i64, ptr {made.word(row, word)}"))
        for word in (context.CELLS_START, context.CELLS_SIZE)
    )
    offsets = made.op(f"sub {ADDRESSES} %addresses, {begin}")
    inside = made.op(f"and i32 %left, {made.bits(made.op(f'icmp ult {ADDRESSES} {offsets}, {length}'))}")
    made.branch(made.op(f"icmp eq i32 {inside}, 0"), "next_row", "here")
    made.label("here")
    made.branch(is_ordered, "ordered", "plain")
    made.label("plain")
    plain = _each_cell(made, verb, False, size, shift, offsets, inside, row, (start, me, "null", "0"), "plain")
    made.do("br label %next_row")
    made.label("ordered")
    known = made.op(f"load ptr, ptr {made.word('%watch', context.KNOWN)}")
    known = made.op(f"load ptr, ptr {made.op(f'getelementptr ptr, ptr {known}, i64 {warp}')}")
    mine = made.op(f"zext i32 {me} to i64")
    used = made.op(f"load ptr, ptr {made.word('%watch', context.USED)}")
    made.do(f"store i8 1, ptr {made.op(f'getelementptr i8, ptr {used}, i64 {mine}')}")
    owners = made.op(f"load ptr, ptr {made.word('%watch', context.OWNERS)}")
    entity = made.op(f"load i32, ptr {made.op(f'getelementptr i32, ptr {owners}, i64 {mine}')}")
    ordered_bad = _each_cell(made, verb, True, size, shift, offsets, inside, row, (start, me, known, entity), "ordered")
    made.do("br label %next_row")
    made.label("next_row")
    odd = made.op(f"phi i32 [ 0, %row ], [ {plain}, %cells_done0 ], [ {ordered_bad}, %cells_done1 ]")
    made.do(f"%bad_after = or i32 %bad, {odd}")
    made.do(f"%left_after = and i32 %left, {made.op(f'xor i32 {inside}, -1')}")
    made.do("%next_number = add i64 %number, 1")
    made.do("br label %rows")
    made.label("rows_done")
    return "%bad"


def order_text(key: Key) -> tuple[Function, str]:
    """`order_<marks>(addresses, lanes, ctx, site)`: report what may order blocks, if races are watched."""
    made = Function()
    made.do(f"%kept = alloca {ADDRESSES}, align 64")
    made.do(f"%watch = load ptr, ptr {made.word('%ctx', context.WATCH)}")
    nothing = made.op("icmp eq i32 %lanes, 0")
    made.branch(made.op(f"or i1 {nothing}, {made.op('icmp eq ptr %watch, null')}"), "done", "tell")
    made.label("tell")
    made.do(f"store {ADDRESSES} %addresses, ptr %kept")
    _ask(made, str(context.EVENT + 16 * int(key[1])), "%lanes", "0", "null")
    made.do("br label %done")
    made.label("done")
    made.do("ret void")
    return made, made.text("void", key, (f"{ADDRESSES} %addresses", "i32 %lanes", "ptr %ctx", "ptr %site"))


# Logs accesses to global memory while a block runs, with the bytes that memory held.


def log_text(key: Key) -> tuple[Function, str]:
    """`log_<verb>_<bits>_<count>(addresses, lanes, ctx, site)`: add a record to the log, if it is not full."""
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
    """Log what memory holds at the lanes' addresses, register by register."""
    pointers, mask = made.op(f"inttoptr {ADDRESSES} %addresses to {POINTERS}"), made.mask("%lanes")
    for place in range(count):
        there = made.op(f"getelementptr i8, {POINTERS} {pointers}, i64 {place * bits // 8}") if place else pointers
        value = gathered(made, there, mask, bits)
        kept = made.op(f"getelementptr i8, ptr {target}, i64 {place * bits // 8 * LANES}")
        made.do(f"store {WIDE.ints(bits)} {value}, ptr {kept}, align 8")
