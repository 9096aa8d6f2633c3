# SPDX-License-Identifier: Apache-2.0
"""Checks and counts accesses to memory."""

from __future__ import annotations

from dataclasses import dataclass

from verl_kernel.env.executor.library import context
from verl_kernel.env.executor.library.context import Function, stride
from verl_kernel.env.executor.lowering import sites
from verl_kernel.env.executor.lowering.writer import LANES, WIDE, Key

ADDRESSES = WIDE.ints(64)


def fault_text(key: Key) -> tuple[Function, str]:
    """`fault(kind, lanes, addresses, ctx, site)`: record the first fault of a launch, with its first lane."""
    made = Function()
    place = made.context(context.FAULT)
    old = made.op(f"load i64, ptr {place}")
    lanes = made.op("icmp ne i32 %lanes, 0")
    is_first = made.op(f"and i1 {lanes}, {made.op(f'icmp eq i64 {old}, 0')}")
    made.branch(is_first, "note", "done")
    made.label("note")
    lane = made.intrinsic("cttz.i32", "i32", ("i32", "%lanes"), ("i1", "false"))
    lane = made.op(f"and i32 {lane}, 31")
    address = made.op(f"extractelement {ADDRESSES} %addresses, i32 {lane}")
    values = {
        context.KIND: made.op("zext i32 %kind to i64"), context.SITE: made.op("ptrtoint ptr %site to i64"),
        context.PLACE: address, context.LANE: made.op(f"zext i32 {lane} to i64"),
    }  # fmt: skip
    for word, value in values.items():
        made.do(f"store i64 {value}, ptr {made.word(place, word)}")
    made.do("br label %done")
    made.label("done")
    made.do("ret void")
    return made, made.text("void", key, ("i32 %kind", "i32 %lanes", f"{ADDRESSES} %addresses", "ptr %ctx", "ptr %site"))


def resolve_text(key: Key) -> tuple[Function, str]:
    """`resolve(addresses, lanes, ctx, site, size, shadows) -> lanes`: find each lane's buffer in the table.

    Lanes without a buffer are faults and are removed. The site stores the last buffer found, to check it first next
    time. The difference between each lane's shadow and its address is written to `shadows`.
    """
    made = Function()
    table, rows = made.context(context.TABLE), made.context(context.BUFFERS, "i64")
    made.do("br label %lane")
    made.label("lane")
    lane = made.op("phi i32 [ 0, %entry ], [ %next_lane, %lane_end ]")
    good = made.op("phi i32 [ 0, %entry ], [ %good_after, %lane_end ]")
    chosen = made.op(f"trunc i32 {made.op(f'lshr i32 %lanes, {lane}')} to i1")
    made.branch(chosen, "look", "lane_end")
    made.label("look")
    address = made.op(f"extractelement {ADDRESSES} %addresses, i32 {lane}")
    made.do("br label %row")
    made.label("row")
    row = made.op("phi i64 [ 0, %look ], [ %next_row, %other_row ]")
    made.branch(made.op(f"icmp ult i64 {row}, {rows}"), "test", "lane_end")
    made.label("test")
    words = made.op(f"getelementptr i64, ptr {table}, i64 {made.op(f'mul i64 {row}, {context.ROW_WORDS}')}")
    start, size, written = (
        made.op(f"load i64, ptr {made.word(words, word)}") for word in (context.START, context.SIZE, context.WRITTEN)
    )
    room = made.op(f"sub i64 {size}, %size")
    offset = made.op(f"sub i64 {address}, {start}")
    is_long = made.op(f"icmp uge i64 {size}, %size")
    fits = made.op(f"and i1 {is_long}, {made.op(f'icmp ule i64 {offset}, {room}')}")
    made.branch(fits, "found", "other_row")
    made.label("found")
    places = made.op(f"add i64 {room}, 1")
    for word, value in ((sites.BUFFER, start), (sites.ROOM, places), (sites.SHADOW, written), (sites.ROW, row)):
        made.do(f"store i64 {value}, ptr {made.word('%site', word)}")
    made.do(f"store i64 {written}, ptr {made.op(f'getelementptr i64, ptr %shadows, i32 {lane}')}")
    better = made.op(f"or i32 {good}, {made.op(f'shl i32 1, {lane}')}")
    made.do("br label %lane_end")
    made.label("other_row")
    made.do(f"%next_row = add i64 {row}, 1")
    made.do("br label %row")
    made.label("lane_end")
    made.do(f"%good_after = phi i32 [ {good}, %lane ], [ {good}, %row ], [ {better}, %found ]")
    made.do(f"%next_lane = add i32 {lane}, 1")
    made.branch(made.op(f"icmp ult i32 %next_lane, {LANES}"), "lane", "done")
    made.label("done")
    bad = made.op("xor i32 %good_after, %lanes")
    made.fault(context.OUT_OF_BOUNDS, bad, "%addresses")
    made.do("ret i32 %good_after")
    arguments = (f"{ADDRESSES} %addresses", "i32 %lanes", "ptr %ctx", "ptr %site", "i64 %size", "ptr %shadows")
    return made, made.text("i32", key, arguments)


def converged_text(key: Key) -> tuple[Function, str]:
    """`converged(active, alive, ctx, site)`: record a fault if lanes that have not ended are inactive."""
    made = Function()
    absent = made.op("xor i32 %active, %alive")
    made.fault(context.DIVERGENT, absent, "zeroinitializer")
    made.do("ret void")
    return made, made.text("void", key, ("i32 %active", "i32 %alive", "ptr %ctx", "ptr %site"))


@dataclass(frozen=True)
class Checked:
    """The results of a check of addresses, as names of values."""

    lanes: str
    """The lanes that may continue."""
    first: str
    """The first lane's address."""
    is_dense: str
    """Whether all lanes' accesses are consecutive from an aligned address on, in the buffer that the site stores."""
    shadows: str
    """The difference between each lane's shadow and its address; 0 where writes are not tracked."""
    is_watched: str
    """Whether some lane has a shadow."""


def check_global(made: Function, verb: str, size: int) -> Checked:
    """Check `%addresses` of the lanes `%lanes` against the table, and count the accesses of kind `verb`."""
    made.do(f"%shadows = alloca {ADDRESSES}, align 64")
    offset = made.op(f"sub {ADDRESSES} %addresses, {made.splat('i64', made.site(sites.BUFFER))}")
    beyond = made.bits(made.op(f"icmp uge {ADDRESSES} {offset}, {made.splat('i64', made.site(sites.ROOM))}"))
    known, row = made.splat("i64", made.site(sites.SHADOW)), made.site(sites.ROW)
    bad = made.op(f"and i32 {beyond}, %lanes")
    made.branch(made.op(f"icmp eq i32 {bad}, 0"), "fine", "slow")
    made.label("slow")
    made.do(f"store {ADDRESSES} zeroinitializer, ptr %shadows")
    places = (f"{ADDRESSES} %addresses", "i32 %lanes", "ptr %ctx", "ptr %site", f"i64 {size}", "ptr %shadows")
    found = made.op(made.call("i32", ("resolve",), *places))
    others, other_row = made.op(f"load {ADDRESSES}, ptr %shadows"), _common_row(made, found)
    made.do("br label %fine")
    made.label("fine")
    lanes = made.op(f"phi i32 [ %lanes, %entry ], [ {found}, %slow ]")
    shadows = made.op(f"phi {ADDRESSES} [ {known}, %entry ], [ {others}, %slow ]")
    is_one = made.op("phi i1 [ true, %entry ], [ false, %slow ]")
    row = made.op(f"phi i64 [ {row}, %entry ], [ {other_row}, %slow ]")
    count_lanes(made, lanes)
    first, is_dense = are_dense(made, "%addresses", lanes, size, 64)
    _count_sectors(made, verb, size, lanes, first, is_dense, row)
    watched = made.bits(made.op(f"icmp ne {ADDRESSES} {shadows}, zeroinitializer"))
    is_dense = made.op(f"and i1 {is_dense}, {is_one}")
    return Checked(lanes, first, is_dense, shadows, made.op(f"icmp ne i32 {watched}, 0"))


def _count_sectors(made: Function, verb: str, size: int, lanes: str, first: str, is_dense: str, row: str) -> None:
    """Count sectors; if the lanes' addresses are consecutive, they follow from the first address."""
    rest = ("ptr %ctx", "ptr %site", f"i64 {row}")
    made.branch(is_dense, "span", "apart")
    made.label("span")
    made.do(made.call("void", ("span", verb), f"i64 {first}", f"i64 {LANES * size}", *rest))
    made.do("br label %counted")
    made.label("apart")
    made.do(made.call("void", ("sectors", verb), f"{ADDRESSES} %addresses", f"i32 {lanes}", *rest))
    made.do("br label %counted")
    made.label("counted")


def _common_row(made: Function, lanes: str) -> str:
    """Return the row of the buffer that contains all of the lanes' addresses; else the row after the last one."""
    offset = made.op(f"sub {ADDRESSES} %addresses, {made.splat('i64', made.site(sites.BUFFER))}")
    beyond = made.bits(made.op(f"icmp uge {ADDRESSES} {offset}, {made.splat('i64', made.site(sites.ROOM))}"))
    is_common = made.op(f"icmp eq i32 {made.op(f'and i32 {beyond}, {lanes}')}, 0")
    return made.op(f"select i1 {is_common}, i64 {made.site(sites.ROW)}, i64 {made.context(context.BUFFERS, 'i64')}")


def check_alignment(made: Function, addresses: str, lanes: str, size: int, bits: int = 64) -> str:
    """Record a fault for lanes whose address is not a multiple of the access's size; returns the other lanes."""
    if size == 1:
        return lanes
    kind = WIDE.ints(bits)
    low = made.op(f"and {kind} {addresses}, {WIDE.const(bits, size - 1)}")
    odd = made.bits(made.op(f"icmp ne {kind} {low}, {WIDE.const(bits, 0)}"))
    odd = made.op(f"and i32 {odd}, {lanes}")
    wide = addresses if bits == 64 else made.op(f"zext {kind} {addresses} to {ADDRESSES}")
    made.fault(context.MISALIGNED, odd, wide)
    return made.op(f"xor i32 {lanes}, {odd}")


def count_lanes(made: Function, lanes: str) -> None:
    """Add the number of lanes to the accesses of the site."""
    count = made.op(f"zext i32 {made.overloaded('ctpop', 'i32', lanes)} to i64")
    made.add_to(made.word("%site", sites.ACCESSES), count)


def check_room(made: Function, places: str, lanes: str, limit: str, size: int, kind: int) -> str:
    """Check 32-bit offsets of lanes against the length of shared or local memory; returns the lanes that fit."""
    words = WIDE.ints(32)
    room = made.op(f"sub i32 {limit}, {size}")
    fits = made.bits(made.op(f"icmp ule {words} {places}, {made.splat('i32', room)}"))
    is_long = made.op(f"icmp uge i32 {limit}, {size}")
    fits = made.op(f"select i1 {is_long}, i32 {fits}, i32 0")
    good = made.op(f"and i32 {fits}, {lanes}")
    made.fault(kind, made.op(f"xor i32 {good}, {lanes}"), made.op(f"zext {words} {places} to {ADDRESSES}"))
    return good


def are_dense(made: Function, places: str, lanes: str, size: int, bits: int) -> tuple[str, str]:
    """Return the first lane's address, and whether all lanes' accesses are consecutive from an aligned address on."""
    kind = WIDE.ints(bits)
    first = made.op(f"extractelement {kind} {places}, i32 0")
    steps = made.op(f"sub {kind} {places}, {made.splat(f'i{bits}', first)}")
    equal = made.bits(made.op(f"icmp eq {kind} {steps}, {stride(size, bits)}"))
    both = made.op(f"and i32 {equal}, {lanes}")
    is_aligned = made.op(f"icmp eq i{bits} {made.op(f'and i{bits} {first}, {size - 1}')}, 0")
    return first, made.op(f"and i1 {is_aligned}, {made.op(f'icmp eq i32 {both}, -1')}")


def watch(made: Function, room: str, verb: str, bits: int, count: int, lanes: str) -> None:
    """Record an access to `%addresses` (of the values `%x0`, ... if it is a store), if accesses are watched."""
    is_off = made.op(f"icmp eq ptr {made.context(context.WATCH)}, null")
    made.branch(is_off, "unwatched", "noted")
    made.label("noted")
    arguments = [f"{WIDE.ints(32 if room == 'shared' else 64)} %addresses", f"i32 {lanes}", "ptr %ctx", "ptr %site"]
    if room == "global":
        log = made.op(f"load ptr, ptr {made.word(made.context(context.WATCH), context.LOG)}")
        made.branch(made.op(f"icmp eq ptr {log}, null"), "races", "logged")
        made.label("logged")
        made.do(made.call("void", ("log", verb.removeprefix("block_"), bits, count), *arguments))
        made.do("br label %unwatched")
        made.label("races")
    arguments += [f"{WIDE.ints(bits)} %x{place}" for place in range(count)] if verb == "store" else []
    made.do(made.call("void", ("watch", room, verb, bits, count), *arguments))
    made.do("br label %unwatched")
    made.label("unwatched")
