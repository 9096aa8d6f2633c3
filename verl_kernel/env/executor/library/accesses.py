# SPDX-License-Identifier: Apache-2.0
"""Loads and stores of a warp: one vector access if the lanes' addresses are consecutive, else one access per lane."""

from __future__ import annotations

from llvmlite.binding import llvm_version_info

from verl_kernel.env.executor.library import checks, context, traffic
from verl_kernel.env.executor.library.checks import Checked
from verl_kernel.env.executor.library.context import MASK, POINTERS, Function, stride
from verl_kernel.env.executor.lowering import sites
from verl_kernel.env.executor.lowering.writer import LANES, WIDE, Key

ADDRESSES = WIDE.ints(64)
_STRONG = {"load": "strong_load", "fetch": "strong_load", "store": "atomic"}


def gathered(made: Function, pointers: str, mask: str, bits: int, default: str = "zeroinitializer") -> str:
    """Load the values at the lanes' pointers."""
    kind = WIDE.ints(bits)
    return made.op(_masked(made, "gather", kind, bits, "", pointers, mask, f", {kind} {default}"))


def scatter(made: Function, value: str, pointers: str, mask: str, bits: int) -> None:
    """Store the lanes' values at their pointers; if lanes have the same address, the last one's value remains."""
    made.do(_masked(made, "scatter", "void", bits, f"{WIDE.ints(bits)} {value}, ", pointers, mask, ""))


def _masked(
    made: Function, verb: str, result: str, bits: int, before: str, pointers: str, mask: str, after: str
) -> str:
    """Call LLVM's gather or scatter with alignment 1: an argument up to LLVM 21, then a pointer attribute."""
    kind = WIDE.ints(bits)
    name = f"llvm.masked.{verb}.v{LANES}i{bits}.v{LANES}p0"
    is_marked = llvm_version_info[0] >= 22
    types = [kind] * bool(before) + [POINTERS] + ["i32"] * (not is_marked) + [MASK] + [kind] * bool(after)
    made.intrinsics[name] = f"declare {result} @{name}({', '.join(types)})"
    place = f"{POINTERS} align 1 {pointers}" if is_marked else f"{POINTERS} {pointers}, i32 1"
    return f"call {result} @{name}({before}{place}, {MASK} {mask}{after})"


def access_text(key: Key) -> tuple[Function, str]:
    """`<room>_<load|fetch|store>_<bits>_<count>[_strong](addresses, lanes, ctx, site[, warp][, values...])`."""
    room, verb, bits, count = str(key[0]), str(key[1]), int(key[2]), int(key[3])
    made = Function()
    width = 32 if room == "shared" else 64
    if room == "global":
        checked = checks.check_global(made, verb, bits * count // 8)
        watched = _STRONG[verb] if len(key) > 4 else "store" if verb == "store" else "load"
        checks.watch(made, room, watched, bits, count, checked.lanes)
        _global(made, verb, bits, count, checked)
    elif room == "shared":
        _shared(made, verb, bits, count)
    else:
        _local(made, verb, bits, count)
    result = "void" if verb == "store" else result_type(bits, count)
    arguments = [f"{WIDE.ints(width)} %addresses", "i32 %lanes", "ptr %ctx", "ptr %site"]
    arguments += ["i32 %warp"] * (room == "local")
    arguments += [f"{WIDE.ints(bits)} %x{place}" for place in range(count)] if verb == "store" else []
    return made, made.text(result, key, arguments)


def result_type(bits: int, count: int) -> str:
    """Return the type of a load's result, one vector for each register."""
    return "{" + ", ".join([WIDE.ints(bits)] * count) + "}"


def _global(made: Function, verb: str, bits: int, count: int, checked: Checked) -> None:
    size = bits * count // 8
    first = checked.first
    made.branch(checked.is_dense, "dense", "sparse")
    made.label("dense")
    made.branch(checked.is_watched, "watched", "plain")
    made.label("watched")
    _watch_dense(made, verb, first, made.site(sites.SHADOW), size)
    made.label("plain")
    _dense(made, verb, bits, count, made.op(f"inttoptr i64 {first} to ptr"))
    made.label("sparse")
    aligned = checks.check_alignment(made, "%addresses", checked.lanes, size)
    made.branch(checked.is_watched, "watched_lanes", "by_lane")
    made.label("watched_lanes")
    _watch_lanes(made, verb, aligned, checked.shadows, bits, count)
    made.do("br label %by_lane")
    made.label("by_lane")
    pointers = made.op(f"inttoptr {ADDRESSES} %addresses to {POINTERS}")
    _sparse(made, verb, bits, count, pointers, made.mask(aligned))


def _dense(made: Function, verb: str, bits: int, count: int, pointer: str) -> None:
    """Access memory for all lanes at once, and end the function."""
    element, lanes = f"i{bits}", LANES * count
    kind = f"<{lanes} x {element}>"
    if verb == "store":
        made.do(f"store {kind} {_interleaved(made, element, count)}, ptr {pointer}, align 1")
        made.do("ret void")
        return
    value = made.op(f"load {kind}, ptr {pointer}, align 1")
    parts = [
        made.shuffle(element, value, range(place, lanes, count), lanes) if count > 1 else value
        for place in range(count)
    ]
    give_back(made, bits, parts)


def give_back(made: Function, bits: int, parts: list[str]) -> None:
    """End a function that loads, with a value for each register."""
    kind, result = result_type(bits, len(parts)), "poison"
    for place, part in enumerate(parts):
        result = made.op(f"insertvalue {kind} {result}, {WIDE.ints(bits)} {part}, {place}")
    made.do(f"ret {kind} {result}")


def _interleaved(made: Function, element: str, count: int) -> str:
    """Interleave the lanes' values `%x0`, `%x1`, ... in the order of memory."""
    joined, lanes = [f"%x{place}" for place in range(count)], LANES
    while len(joined) > 1:
        joined = [
            made.shuffle(element, left, range(2 * lanes), lanes, right)
            for left, right in zip(joined[::2], joined[1::2], strict=True)
        ]
        lanes *= 2
    if count == 1:
        return joined[0]
    return made.shuffle(
        element, joined[0], [part * LANES + lane for lane in range(LANES) for part in range(count)], lanes
    )


def _sparse(made: Function, verb: str, bits: int, count: int, pointers: str, mask: str) -> None:
    """Access memory for each lane, and end the function."""
    parts = []
    for place in range(count):
        moved = made.op(f"getelementptr i8, {POINTERS} {pointers}, i64 {place * bits // 8}") if place else pointers
        if verb == "store":
            scatter(made, f"%x{place}", moved, mask, bits)
        else:
            parts.append(gathered(made, moved, mask, bits))
    if verb == "store":
        made.do("ret void")
    else:
        give_back(made, bits, parts)


def _watch_dense(made: Function, verb: str, first: str, written: str, size: int) -> None:
    """Mark the bytes of all lanes as written; if a load reads unwritten bytes, continue lane by lane."""
    pointer = made.op(f"inttoptr i64 {made.op(f'add i64 {first}, {written}')} to ptr")
    length = LANES * size
    kind = f"<{length} x i8>"
    if verb == "store":
        made.do(f"store {kind} splat (i8 1), ptr {pointer}, align 1")
        made.do("br label %plain")
        return
    marks = made.op(f"load {kind}, ptr {pointer}, align 1")
    least = made.intrinsic(f"vector.reduce.umin.v{length}i8", "i8", (kind, marks))
    made.branch(made.op(f"icmp eq i8 {least}, 0"), "sparse", "plain")


def shadow_of(made: Function, lanes: str, shadows: str) -> tuple[str, str]:
    """Return pointers to the shadows of `%addresses`, and a mask of the lanes in `lanes` that have a shadow."""
    moved = made.op(f"add {ADDRESSES} %addresses, {shadows}")
    watched = made.bits(made.op(f"icmp ne {ADDRESSES} {shadows}, zeroinitializer"))
    return made.op(f"inttoptr {ADDRESSES} {moved} to {POINTERS}"), made.mask(made.op(f"and i32 {watched}, {lanes}"))


def _watch_lanes(made: Function, verb: str, lanes: str, shadows: str, bits: int, count: int) -> None:
    """Mark the bytes of lanes as written, or count the lanes that read unwritten bytes."""
    pointers, mask = shadow_of(made, lanes, shadows)
    marks = int("01" * (bits // 8), 16)
    missing = "0"
    for place in range(count):
        there = made.op(f"getelementptr i8, {POINTERS} {pointers}, i64 {place * bits // 8}") if place else pointers
        if verb == "store":
            scatter(made, WIDE.const(bits, marks), there, mask, bits)
        else:
            found = gathered(made, there, mask, bits, WIDE.const(bits, marks))
            absent = made.bits(made.op(f"icmp ne {WIDE.ints(bits)} {found}, {WIDE.const(bits, marks)}"))
            missing = made.op(f"or i32 {missing}, {absent}")
    if verb != "store":
        count_of = made.op(f"zext i32 {made.overloaded('ctpop', 'i32', missing)} to i64")
        made.add_to(made.word("%site", sites.UNWRITTEN), count_of)


def shared_lanes(made: Function, size: int, phase: int = LANES) -> tuple[str, str]:
    """Return the start of shared memory and the lanes whose access fits into it; `phase` lanes are served at a time."""
    base = made.context(context.SHARED)
    limit = made.op(f"trunc i64 {made.context(context.SHARED_BYTES, 'i64')} to i32")
    good = checks.check_room(made, "%addresses", "%lanes", limit, size, context.OUT_OF_SHARED)
    checks.count_lanes(made, good)
    traffic.count_passes(made, size, good, phase)
    return base, good


def _shared(made: Function, verb: str, bits: int, count: int) -> None:
    size = bits * count // 8
    base, good = shared_lanes(made, size)
    checks.watch(made, "shared", verb, bits, count, good)
    first, is_dense = checks.are_dense(made, "%addresses", good, size, 32)
    made.branch(is_dense, "dense", "sparse")
    made.label("dense")
    _dense(made, verb, bits, count, made.op(f"getelementptr i8, ptr {base}, i32 {first}"))
    made.label("sparse")
    aligned = checks.check_alignment(made, "%addresses", good, size, 32)
    offsets = made.op(f"zext {WIDE.ints(32)} %addresses to {ADDRESSES}")
    _sparse(
        made, verb, bits, count, made.op(f"getelementptr i8, ptr {base}, {ADDRESSES} {offsets}"), made.mask(aligned)
    )


def _local(made: Function, verb: str, bits: int, count: int) -> None:
    """Access local memory: each lane has its own piece, and the word at the start holds the length of a piece."""
    size = bits * count // 8
    base = made.context(context.LOCAL)
    length = made.op(f"load i64, ptr {made.word(base, 0)}")
    low = made.op(f"trunc {ADDRESSES} %addresses to {WIDE.ints(32)}")
    limit = made.op(f"trunc i64 {length} to i32")
    good = checks.check_room(made, low, "%lanes", limit, size, context.OUT_OF_LOCAL)
    checks.count_lanes(made, good)
    aligned = checks.check_alignment(made, low, good, size, 32)
    lane = made.op(f"mul i32 %warp, {LANES}")
    lane = made.op(f"add {WIDE.ints(32)} {made.splat('i32', lane)}, {stride(1, 32)}")
    own = made.op(f"mul {WIDE.ints(32)} {lane}, {made.splat('i32', limit)}")
    offset = made.op(f"add {WIDE.ints(32)} {own}, {low}")
    offset = made.op(f"zext {WIDE.ints(32)} {offset} to {ADDRESSES}")
    start = made.op(f"getelementptr i8, ptr {base}, i64 64")
    _sparse(
        made, verb, bits, count, made.op(f"getelementptr i8, ptr {start}, {ADDRESSES} {offset}"), made.mask(aligned)
    )


# Asynchronous copies from global to shared memory are done immediately.


WORDS = WIDE.ints(32)


def copy_text(key: Key) -> tuple[Function, str]:
    """`copy_<size>(targets, addresses, read, all_lanes, ctx, site, scratch)`: store zeros after `read` bytes."""
    made, size = Function(), int(key[1])
    over = made.bits(made.op(f"icmp ugt {WORDS} %read, {WIDE.const(32, size)}"))
    made.fault(context.STOPPED, made.op(f"and i32 {over}, %all_lanes"), "%addresses")
    whole = made.bits(made.op(f"icmp eq {WORDS} %read, {WIDE.const(32, size)}"))
    nothing = made.bits(made.op(f"icmp eq {WORDS} %read, zeroinitializer"))
    rest = made.op(f"or i32 {made.op(f'or i32 {whole}, {nothing}')}, {over}")
    partial = made.op(f"and i32 {made.op(f'xor i32 {rest}, -1')}, %all_lanes")
    loaded = _loaded(made, 32, size // 4, "%addresses", made.op(f"and i32 {whole}, %all_lanes"))
    made.branch(made.op(f"icmp eq i32 {partial}, 0"), "store", "bytes")
    made.label("bytes")
    single = _bytes(made, size, checks.check_alignment(made, "%addresses", partial, size))
    made.do("br label %store")
    made.label("store")
    values = []
    for word, part in zip(single, loaded, strict=True):
        other = made.op(f"phi {WORDS} [ zeroinitializer, %entry ], [ {word}, %bytes ]")
        values.append((part, other))
    stored = [f"{WORDS} {made.op(f'or {WORDS} {part}, {other}')}" for part, other in values]
    places = (f"{WORDS} %targets", "i32 %all_lanes", "ptr %ctx", "ptr %scratch")
    made.do(made.call("void", ("shared", "store", 32, size // 4), *places, *stored))
    made.do("ret void")
    arguments = (
        f"{WORDS} %targets", f"{ADDRESSES} %addresses", f"{WORDS} %read", "i32 %all_lanes", "ptr %ctx", "ptr %site",
        "ptr %scratch",
    )  # fmt: skip
    return made, made.text("void", key, arguments)


def _loaded(made: Function, bits: int, count: int, addresses: str, lanes: str) -> list[str]:
    """Load a value of each lane for each register; lanes outside of `lanes` get zeros."""
    kind = result_type(bits, count)
    places = (f"{ADDRESSES} {addresses}", f"i32 {lanes}", "ptr %ctx", "ptr %site")
    found = made.op(made.call(kind, ("global", "fetch", bits, count), *places))
    return [made.op(f"extractvalue {kind} {found}, {place}") for place in range(count)]


def _bytes(made: Function, size: int, lanes: str) -> list[str]:
    """Load the words of lanes that read only part of them, byte by byte."""
    words = ["zeroinitializer"] * (size // 4)
    for place in range(size):
        reads = made.bits(made.op(f"icmp ugt {WORDS} %read, {WIDE.const(32, place)}"))
        address = made.op(f"add {ADDRESSES} %addresses, {WIDE.const(64, place)}")
        (byte,) = _loaded(made, 8, 1, address, made.op(f"and i32 {reads}, {lanes}"))
        wide = made.op(f"zext {WIDE.ints(8)} {byte} to {WORDS}")
        moved = made.op(f"shl {WORDS} {wide}, {WIDE.const(32, 8 * (place % 4))}")
        words[place // 4] = made.op(f"or {WORDS} {words[place // 4]}, {moved}")
    return words
