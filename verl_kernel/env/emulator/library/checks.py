# SPDX-License-Identifier: Apache-2.0
"""Checks and counts accesses to memory."""

from __future__ import annotations

from dataclasses import dataclass

from verl_kernel.env.emulator.library import context
from verl_kernel.env.emulator.library.context import FunctionWriter, stride
from verl_kernel.env.emulator.lowering import sites
from verl_kernel.env.emulator.lowering.writer import LANES, WIDE, Key

ADDRESSES = WIDE.ints(64)


def fault_text(key: Key) -> tuple[FunctionWriter, str]:
    """`fault(kind, lanes, addresses, ctx, site)`: record the first fault of a launch, with its first lane."""
    body = FunctionWriter()
    fault = body.context(context.FAULT)
    old = body.op(f"load i64, ptr {fault}")
    lanes = body.op("icmp ne i32 %lanes, 0")
    # Lanes and instructions after the first fault may only follow from it.
    is_first = body.op(f"and i1 {lanes}, {body.op(f'icmp eq i64 {old}, 0')}")
    body.begin_if(is_first, "note", "done")
    lane = body.intrinsic("cttz.i32", "i32", ("i32", "%lanes"), ("i1", "false"))
    # `cttz` of no lanes is 32, beyond the vector.
    lane = body.op(f"and i32 {lane}, 31")
    address = body.op(f"extractelement {ADDRESSES} %addresses, i32 {lane}")
    values = {
        context.KIND: body.op("zext i32 %kind to i64"),
        context.SITE: body.op("ptrtoint ptr %site to i64"),
        context.ADDRESS: address,
        context.LANE: body.op(f"zext i32 {lane} to i64"),
    }
    for word, value in values.items():
        body.do(f"store i64 {value}, ptr {body.word(fault, word)}")
    body.fall_into("done")
    body.do("ret void")
    return body, body.text("void", key, ("i32 %kind", "i32 %lanes", f"{ADDRESSES} %addresses", "ptr %ctx", "ptr %site"))


def resolve_text(key: Key) -> tuple[FunctionWriter, str]:
    """`resolve(addresses, lanes, ctx, site, size, shadows) -> lanes`: find each lane's buffer in the table.

    Lanes without a buffer are faults and are removed. The site stores the last buffer found, to check it first next
    time. The difference between each lane's shadow and its address is written to `shadows`.
    """
    body = FunctionWriter()
    table, rows = body.context(context.TABLE), body.context(context.BUFFERS, "i64")
    body.fall_into("lane")
    lane = body.op("phi i32 [ 0, %entry ], [ %next_lane, %lane_end ]")
    resolved = body.op("phi i32 [ 0, %entry ], [ %good_after, %lane_end ]")
    chosen = body.op(f"trunc i32 {body.op(f'lshr i32 %lanes, {lane}')} to i1")
    body.begin_if(chosen, "look", "lane_end")
    address = body.op(f"extractelement {ADDRESSES} %addresses, i32 {lane}")
    body.fall_into("row")
    row = body.op("phi i64 [ 0, %look ], [ %next_row, %other_row ]")
    body.begin_if(body.op(f"icmp ult i64 {row}, {rows}"), "test", "lane_end")
    words = body.op(f"getelementptr i64, ptr {table}, i64 {body.op(f'mul i64 {row}, {context.ROW_WORDS}')}")
    start, size, written = (
        body.op(f"load i64, ptr {body.word(words, word)}") for word in (context.START, context.SIZE, context.WRITTEN)
    )
    # As unsigned numbers, addresses below the buffer are beyond its end: one comparison checks both.
    room = body.op(f"sub i64 {size}, %size")
    offset = body.op(f"sub i64 {address}, {start}")
    # In a buffer shorter than the access the difference would wrap around.
    is_long = body.op(f"icmp uge i64 {size}, %size")
    fits = body.op(f"and i1 {is_long}, {body.op(f'icmp ule i64 {offset}, {room}')}")
    body.begin_if(fits, "found", "other_row")
    offset_count = body.op(f"add i64 {room}, 1")
    for word, value in ((sites.BUFFER, start), (sites.ROOM, offset_count), (sites.SHADOW, written), (sites.ROW, row)):
        body.do(f"store i64 {value}, ptr {body.word('%site', word)}")
    body.do(f"store i64 {written}, ptr {body.op(f'getelementptr i64, ptr %shadows, i32 {lane}')}")
    with_lane = body.op(f"or i32 {resolved}, {body.op(f'shl i32 1, {lane}')}")
    body.do("br label %lane_end")
    body.label("other_row")
    body.do(f"%next_row = add i64 {row}, 1")
    body.do("br label %row")
    body.label("lane_end")
    body.do(f"%good_after = phi i32 [ {resolved}, %lane ], [ {resolved}, %row ], [ {with_lane}, %found ]")
    body.do(f"%next_lane = add i32 {lane}, 1")
    body.begin_unless(body.op(f"icmp ult i32 %next_lane, {LANES}"), "lane", "done")
    outside = body.op("xor i32 %good_after, %lanes")
    body.fault(context.OUT_OF_BOUNDS, outside, "%addresses")
    body.do("ret i32 %good_after")
    arguments = (f"{ADDRESSES} %addresses", "i32 %lanes", "ptr %ctx", "ptr %site", "i64 %size", "ptr %shadows")
    return body, body.text("i32", key, arguments)


def converged_text(key: Key) -> tuple[FunctionWriter, str]:
    """`converged(active, alive, ctx, site)`: record a fault if lanes that have not ended are inactive."""
    body = FunctionWriter()
    absent = body.op("xor i32 %active, %alive")
    body.fault(context.DIVERGENT, absent, "zeroinitializer")
    body.do("ret void")
    return body, body.text("void", key, ("i32 %active", "i32 %alive", "ptr %ctx", "ptr %site"))


@dataclass(frozen=True)
class AddressCheck:
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


def check_global(body: FunctionWriter, verb: str, size: int) -> AddressCheck:
    """Check `%addresses` of the lanes `%lanes` against the table, and count the accesses of kind `verb`."""
    body.do(f"%shadows = alloca {ADDRESSES}, align 64")
    offset = body.op(f"sub {ADDRESSES} %addresses, {body.splat('i64', body.site(sites.BUFFER))}")
    beyond = body.bits(body.op(f"icmp uge {ADDRESSES} {offset}, {body.splat('i64', body.site(sites.ROOM))}"))
    shadow, row = body.splat("i64", body.site(sites.SHADOW)), body.site(sites.ROW)
    # The site keeps the buffer that it found last: the table is searched only for addresses beyond it.
    unresolved = body.op(f"and i32 {beyond}, %lanes")
    body.begin_unless(body.op(f"icmp eq i32 {unresolved}, 0"), "fine", "slow")
    body.do(f"store {ADDRESSES} zeroinitializer, ptr %shadows")
    arguments = (f"{ADDRESSES} %addresses", "i32 %lanes", "ptr %ctx", "ptr %site", f"i64 {size}", "ptr %shadows")
    resolved = body.op(body.call("i32", ("resolve",), *arguments))
    lane_shadows, other_row = body.op(f"load {ADDRESSES}, ptr %shadows"), _common_row(body, resolved)
    body.fall_into("fine")
    lanes = body.op(f"phi i32 [ %lanes, %entry ], [ {resolved}, %slow ]")
    shadows = body.op(f"phi {ADDRESSES} [ {shadow}, %entry ], [ {lane_shadows}, %slow ]")
    # Lanes in several buffers are never accessed as one vector: their shadows differ.
    is_one = body.op("phi i1 [ true, %entry ], [ false, %slow ]")
    row = body.op(f"phi i64 [ {row}, %entry ], [ {other_row}, %slow ]")
    count_lanes(body, lanes)
    first, is_dense = are_dense(body, "%addresses", lanes, size, 64)
    _count_sectors(body, verb, size, lanes=lanes, first=first, is_dense=is_dense, row=row)
    watched = body.bits(body.op(f"icmp ne {ADDRESSES} {shadows}, zeroinitializer"))
    is_dense = body.op(f"and i1 {is_dense}, {is_one}")
    return AddressCheck(lanes, first, is_dense, shadows, body.op(f"icmp ne i32 {watched}, 0"))


def _count_sectors(
    body: FunctionWriter, verb: str, size: int, *, lanes: str, first: str, is_dense: str, row: str
) -> None:
    """Count sectors; if the lanes' addresses are consecutive, they follow from the first address."""
    context_arguments = ("ptr %ctx", "ptr %site", f"i64 {row}")
    body.begin_if(is_dense, "span", "apart")
    body.do(body.call("void", ("span", verb), f"i64 {first}", f"i64 {LANES * size}", *context_arguments))
    body.do("br label %counted")
    body.label("apart")
    body.do(body.call("void", ("sectors", verb), f"{ADDRESSES} %addresses", f"i32 {lanes}", *context_arguments))
    body.fall_into("counted")


def _common_row(body: FunctionWriter, lanes: str) -> str:
    """Return the row of the buffer that contains all of the lanes' addresses; else the row after the last one."""
    offset = body.op(f"sub {ADDRESSES} %addresses, {body.splat('i64', body.site(sites.BUFFER))}")
    beyond = body.bits(body.op(f"icmp uge {ADDRESSES} {offset}, {body.splat('i64', body.site(sites.ROOM))}"))
    is_common = body.op(f"icmp eq i32 {body.op(f'and i32 {beyond}, {lanes}')}, 0")
    return body.op(f"select i1 {is_common}, i64 {body.site(sites.ROW)}, i64 {body.context(context.BUFFERS, 'i64')}")


def check_alignment(body: FunctionWriter, addresses: str, lanes: str, size: int, bits: int = 64) -> str:
    """Record a fault for lanes whose address is not a multiple of the access's size; returns the other lanes."""
    if size == 1:
        return lanes
    kind = WIDE.ints(bits)
    low = body.op(f"and {kind} {addresses}, {WIDE.const(bits, size - 1)}")
    misaligned = body.bits(body.op(f"icmp ne {kind} {low}, {WIDE.const(bits, 0)}"))
    misaligned = body.op(f"and i32 {misaligned}, {lanes}")
    wide = addresses if bits == 64 else body.op(f"zext {kind} {addresses} to {ADDRESSES}")
    body.fault(context.MISALIGNED, misaligned, wide)
    return body.op(f"xor i32 {lanes}, {misaligned}")


def count_lanes(body: FunctionWriter, lanes: str) -> None:
    """Add the number of lanes to the accesses of the site."""
    count = body.op(f"zext i32 {body.overloaded('ctpop', 'i32', lanes)} to i64")
    body.add_to(body.word("%site", sites.ACCESSES), count)


def check_room(body: FunctionWriter, offsets: str, lanes: str, *, limit: str, size: int, kind: int) -> str:
    """Check 32-bit offsets of lanes against the length of shared or local memory; returns the lanes that fit."""
    words = WIDE.ints(32)
    # Unsigned, as for buffers: negative offsets are beyond the end.
    room = body.op(f"sub i32 {limit}, {size}")
    fits = body.bits(body.op(f"icmp ule {words} {offsets}, {body.splat('i32', room)}"))
    is_long = body.op(f"icmp uge i32 {limit}, {size}")
    fits = body.op(f"select i1 {is_long}, i32 {fits}, i32 0")
    fitting = body.op(f"and i32 {fits}, {lanes}")
    body.fault(kind, body.op(f"xor i32 {fitting}, {lanes}"), body.op(f"zext {words} {offsets} to {ADDRESSES}"))
    return fitting


def are_dense(body: FunctionWriter, addresses: str, lanes: str, size: int, bits: int) -> tuple[str, str]:
    """Return the first lane's address, and whether all lanes' accesses are consecutive from an aligned address on."""
    kind = WIDE.ints(bits)
    first = body.op(f"extractelement {kind} {addresses}, i32 0")
    steps = body.op(f"sub {kind} {addresses}, {body.splat(f'i{bits}', first)}")
    equal = body.bits(body.op(f"icmp eq {kind} {steps}, {stride(size, bits)}"))
    consecutive = body.op(f"and i32 {equal}, {lanes}")
    is_aligned = body.op(f"icmp eq i{bits} {body.op(f'and i{bits} {first}, {size - 1}')}, 0")
    return first, body.op(f"and i1 {is_aligned}, {body.op(f'icmp eq i32 {consecutive}, -1')}")


def watch(body: FunctionWriter, room: str, verb: str, *, bits: int, count: int, lanes: str) -> None:
    """Record an access to `%addresses` (of the values `%x0`, ... if it is a store), if accesses are watched."""
    # One load and a branch: what is not watched pays no more.
    is_off = body.op(f"icmp eq ptr {body.context(context.WATCH)}, null")
    body.begin_unless(is_off, "unwatched", "noted")
    arguments = [f"{WIDE.ints(32 if room == 'shared' else 64)} %addresses", f"i32 {lanes}", "ptr %ctx", "ptr %site"]
    if room == "global":
        # Shared memory is not logged: what lies there has come from global memory, or was computed.
        log = body.op(f"load ptr, ptr {body.word(body.context(context.WATCH), context.LOG)}")
        body.begin_unless(body.op(f"icmp eq ptr {log}, null"), "races", "logged")
        body.do(body.call("void", ("log", verb.removeprefix("block_"), bits, count), *arguments))
        body.do("br label %unwatched")
        body.label("races")
    arguments += [f"{WIDE.ints(bits)} %x{index}" for index in range(count)] if verb == "store" else []
    body.do(body.call("void", ("watch", room, verb, bits, count), *arguments))
    body.fall_into("unwatched")
