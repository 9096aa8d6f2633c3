# SPDX-License-Identifier: Apache-2.0
"""Loads and stores of a warp: one vector access if the lanes' addresses are consecutive, else one access per lane."""

from __future__ import annotations

from llvmlite.binding import llvm_version_info

from verl_kernel.env.emulator.library import checks, context, traffic
from verl_kernel.env.emulator.library.checks import AddressCheck
from verl_kernel.env.emulator.library.context import MASK, POINTERS, FunctionWriter, stride
from verl_kernel.env.emulator.lowering import sites
from verl_kernel.env.emulator.lowering.writer import LANES, WIDE, Key

ADDRESSES = WIDE.ints(64)
# Strong accesses do not race with atomics, so a strong store is watched as one.
_STRONG = {"load": "strong_load", "fetch": "strong_load", "store": "atomic"}


def gathered(body: FunctionWriter, pointers: str, mask: str, bits: int, default: str = "zeroinitializer") -> str:
    """Load the values at the lanes' pointers."""
    kind = WIDE.ints(bits)
    return body.op(_masked(body, "gather", kind, bits, pointers=pointers, mask=mask, after=f", {kind} {default}"))


def scatter(body: FunctionWriter, value: str, pointers: str, mask: str, bits: int) -> None:
    """Store the lanes' values at their pointers; if lanes have the same address, the last one's value remains."""
    before = f"{WIDE.ints(bits)} {value}, "
    body.do(_masked(body, "scatter", "void", bits, pointers=pointers, mask=mask, before=before))


def _masked(
    body: FunctionWriter,
    verb: str,
    result: str,
    bits: int,
    *,
    pointers: str,
    mask: str,
    before: str = "",
    after: str = "",
) -> str:
    """Call LLVM's gather or scatter with alignment 1: an argument up to LLVM 21, then a pointer attribute."""
    kind = WIDE.ints(bits)
    name = f"llvm.masked.{verb}.v{LANES}i{bits}.v{LANES}p0"
    is_marked = llvm_version_info[0] >= 22
    types = [kind] * bool(before) + [POINTERS] + ["i32"] * (not is_marked) + [MASK] + [kind] * bool(after)
    body.intrinsics[name] = f"declare {result} @{name}({', '.join(types)})"
    pointer_argument = f"{POINTERS} align 1 {pointers}" if is_marked else f"{POINTERS} {pointers}, i32 1"
    return f"call {result} @{name}({before}{pointer_argument}, {MASK} {mask}{after})"


def access_text(key: Key) -> tuple[FunctionWriter, str]:
    """`<room>_<load|fetch|store>_<bits>_<count>[_strong](addresses, lanes, ctx, site[, warp][, values...])`."""
    room, verb, bits, count = str(key[0]), str(key[1]), int(key[2]), int(key[3])
    body = FunctionWriter()
    width = 32 if room == "shared" else 64
    if room == "global":
        checked = checks.check_global(body, verb, bits * count // 8)
        watched = _STRONG[verb] if len(key) > 4 else "store" if verb == "store" else "load"
        checks.watch(body, room, watched, bits=bits, count=count, lanes=checked.lanes)
        _global(body, verb, bits, count, checked)
    elif room == "shared":
        _shared(body, verb, bits, count)
    else:
        _local(body, verb, bits, count)
    result = "void" if verb == "store" else result_type(bits, count)
    arguments = [f"{WIDE.ints(width)} %addresses", "i32 %lanes", "ptr %ctx", "ptr %site"]
    arguments += ["i32 %warp"] * (room == "local")
    arguments += [f"{WIDE.ints(bits)} %x{index}" for index in range(count)] if verb == "store" else []
    return body, body.text(result, key, arguments)


def result_type(bits: int, count: int) -> str:
    """Return the type of a load's result, one vector for each register."""
    return "{" + ", ".join([WIDE.ints(bits)] * count) + "}"


def _global(body: FunctionWriter, verb: str, bits: int, count: int, checked: AddressCheck) -> None:
    size = bits * count // 8
    first = checked.first
    body.begin_if(checked.is_dense, "dense", "sparse")
    body.begin_if(checked.is_watched, "watched", "plain")
    _watch_dense(body, verb, first, body.site(sites.SHADOW), size)
    body.label("plain")
    _dense(body, verb, bits, count, body.op(f"inttoptr i64 {first} to ptr"))
    body.label("sparse")
    # Dense accesses are aligned as a whole (`checks.are_dense`); others lane by lane.
    aligned = checks.check_alignment(body, "%addresses", checked.lanes, size)
    body.begin_if(checked.is_watched, "watched_lanes", "by_lane")
    _watch_lanes(body, verb, bits, count, lanes=aligned, shadows=checked.shadows)
    body.fall_into("by_lane")
    pointers = body.op(f"inttoptr {ADDRESSES} %addresses to {POINTERS}")
    _sparse(body, verb, bits, count, pointers=pointers, mask=body.mask(aligned))


def _dense(body: FunctionWriter, verb: str, bits: int, count: int, pointer: str) -> None:
    """Access memory for all lanes at once, and end the function."""
    element, lanes = f"i{bits}", LANES * count
    kind = f"<{lanes} x {element}>"
    if verb == "store":
        body.do(f"store {kind} {_interleaved(body, element, count)}, ptr {pointer}, align 1")
        body.do("ret void")
        return
    value = body.op(f"load {kind}, ptr {pointer}, align 1")
    parts = [
        body.shuffle(element, value, range(index, lanes, count), lanes) if count > 1 else value
        for index in range(count)
    ]
    give_back(body, bits, parts)


def give_back(body: FunctionWriter, bits: int, parts: list[str]) -> None:
    """End a function that loads, with a value for each register."""
    kind, result = result_type(bits, len(parts)), "poison"
    for index, part in enumerate(parts):
        result = body.op(f"insertvalue {kind} {result}, {WIDE.ints(bits)} {part}, {index}")
    body.do(f"ret {kind} {result}")


def _interleaved(body: FunctionWriter, element: str, count: int) -> str:
    """Interleave the lanes' values `%x0`, `%x1`, ... in the order of memory."""
    joined, lanes = [f"%x{index}" for index in range(count)], LANES
    # In pairs, as LLVM shuffles two vectors at a time: v4 takes two rounds.
    while len(joined) > 1:
        joined = [
            body.shuffle(element, even, range(2 * lanes), lanes, odd)
            for even, odd in zip(joined[::2], joined[1::2], strict=True)
        ]
        lanes *= 2
    if count == 1:
        return joined[0]
    return body.shuffle(
        element, joined[0], [part * LANES + lane for lane in range(LANES) for part in range(count)], lanes
    )


def _sparse(body: FunctionWriter, verb: str, bits: int, count: int, *, pointers: str, mask: str) -> None:
    """Access memory for each lane, and end the function."""
    parts = []
    for index in range(count):
        element_pointers = (
            body.op(f"getelementptr i8, {POINTERS} {pointers}, i64 {index * bits // 8}") if index else pointers
        )
        if verb == "store":
            scatter(body, f"%x{index}", element_pointers, mask, bits)
        else:
            parts.append(gathered(body, element_pointers, mask, bits))
    if verb == "store":
        body.do("ret void")
    else:
        give_back(body, bits, parts)


def _watch_dense(body: FunctionWriter, verb: str, first: str, shadow_offset: str, size: int) -> None:
    """Mark the bytes of all lanes as written; if a load reads unwritten bytes, continue lane by lane."""
    pointer = body.op(f"inttoptr i64 {body.op(f'add i64 {first}, {shadow_offset}')} to ptr")
    length = LANES * size
    kind = f"<{length} x i8>"
    if verb == "store":
        body.do(f"store {kind} splat (i8 1), ptr {pointer}, align 1")
        body.do("br label %plain")
        return
    marks = body.op(f"load {kind}, ptr {pointer}, align 1")
    # One unwritten byte suffices to go on lane by lane, where lanes are counted.
    smallest = body.intrinsic(f"vector.reduce.umin.v{length}i8", "i8", (kind, marks))
    body.branch(body.op(f"icmp eq i8 {smallest}, 0"), "sparse", "plain")


def shadow_of(body: FunctionWriter, lanes: str, shadows: str) -> tuple[str, str]:
    """Return pointers to the shadows of `%addresses`, and a mask of the lanes in `lanes` that have a shadow."""
    shadow_addresses = body.op(f"add {ADDRESSES} %addresses, {shadows}")
    watched = body.bits(body.op(f"icmp ne {ADDRESSES} {shadows}, zeroinitializer"))
    return body.op(f"inttoptr {ADDRESSES} {shadow_addresses} to {POINTERS}"), body.mask(
        body.op(f"and i32 {watched}, {lanes}")
    )


def _watch_lanes(body: FunctionWriter, verb: str, bits: int, count: int, *, lanes: str, shadows: str) -> None:
    """Mark the bytes of lanes as written, or count the lanes that read unwritten bytes."""
    pointers, mask = shadow_of(body, lanes, shadows)
    # A shadow has a byte of 1 for each written byte: compared as wide as the element.
    marks = int("01" * (bits // 8), 16)
    missing = "0"
    for index in range(count):
        shadow_pointers = (
            body.op(f"getelementptr i8, {POINTERS} {pointers}, i64 {index * bits // 8}") if index else pointers
        )
        if verb == "store":
            scatter(body, WIDE.const(bits, marks), shadow_pointers, mask, bits)
        else:
            shadow = gathered(body, shadow_pointers, mask, bits, WIDE.const(bits, marks))
            absent = body.bits(body.op(f"icmp ne {WIDE.ints(bits)} {shadow}, {WIDE.const(bits, marks)}"))
            missing = body.op(f"or i32 {missing}, {absent}")
    if verb != "store":
        count_of = body.op(f"zext i32 {body.overloaded('ctpop', 'i32', missing)} to i64")
        body.add_to(body.word("%site", sites.UNWRITTEN), count_of)


def shared_lanes(body: FunctionWriter, size: int, phase: int = LANES) -> tuple[str, str]:
    """Return the start of shared memory and the lanes whose access fits into it; `phase` lanes are served at a time."""
    base = body.context(context.SHARED)
    limit = body.op(f"trunc i64 {body.context(context.SHARED_BYTES, 'i64')} to i32")
    fitting = checks.check_room(body, "%addresses", "%lanes", limit=limit, size=size, kind=context.OUT_OF_SHARED)
    checks.count_lanes(body, fitting)
    traffic.count_passes(body, size, fitting, phase)
    return base, fitting


def _shared(body: FunctionWriter, verb: str, bits: int, count: int) -> None:
    size = bits * count // 8
    base, fitting = shared_lanes(body, size)
    checks.watch(body, "shared", verb, bits=bits, count=count, lanes=fitting)
    first, is_dense = checks.are_dense(body, "%addresses", fitting, size, 32)
    body.begin_if(is_dense, "dense", "sparse")
    _dense(body, verb, bits, count, body.op(f"getelementptr i8, ptr {base}, i32 {first}"))
    body.label("sparse")
    aligned = checks.check_alignment(body, "%addresses", fitting, size, 32)
    offsets = body.op(f"zext {WIDE.ints(32)} %addresses to {ADDRESSES}")
    pointers = body.op(f"getelementptr i8, ptr {base}, {ADDRESSES} {offsets}")
    _sparse(body, verb, bits, count, pointers=pointers, mask=body.mask(aligned))


def _local(body: FunctionWriter, verb: str, bits: int, count: int) -> None:
    """Access local memory: each lane has its own piece, and the word at the start holds the length of a piece."""
    size = bits * count // 8
    base = body.context(context.LOCAL)
    length = body.op(f"load i64, ptr {body.word(base, 0)}")
    # A lane's local memory is smaller than 4 GB (`function.MOST_LOCAL`).
    low = body.op(f"trunc {ADDRESSES} %addresses to {WIDE.ints(32)}")
    limit = body.op(f"trunc i64 {length} to i32")
    fitting = checks.check_room(body, low, "%lanes", limit=limit, size=size, kind=context.OUT_OF_LOCAL)
    checks.count_lanes(body, fitting)
    aligned = checks.check_alignment(body, low, fitting, size, 32)
    # Threads of a block have their pieces one after the other.
    lane = body.op(f"mul i32 %warp, {LANES}")
    lane = body.op(f"add {WIDE.ints(32)} {body.splat('i32', lane)}, {stride(1, 32)}")
    lane_start = body.op(f"mul {WIDE.ints(32)} {lane}, {body.splat('i32', limit)}")
    offset = body.op(f"add {WIDE.ints(32)} {lane_start}, {low}")
    offset = body.op(f"zext {WIDE.ints(32)} {offset} to {ADDRESSES}")
    start = body.op(f"getelementptr i8, ptr {base}, i64 64")
    pointers = body.op(f"getelementptr i8, ptr {start}, {ADDRESSES} {offset}")
    _sparse(body, verb, bits, count, pointers=pointers, mask=body.mask(aligned))


# Asynchronous copies from global to shared memory are done immediately.


WORDS = WIDE.ints(32)


def copy_text(key: Key) -> tuple[FunctionWriter, str]:
    """`copy_<size>(targets, addresses, read, all_lanes, ctx, site, scratch)`: store zeros after `read` bytes."""
    body, size = FunctionWriter(), int(key[1])
    # PTX ISA, "cp.async": a source size beyond the copy's size is undefined.
    oversized = body.bits(body.op(f"icmp ugt {WORDS} %read, {WIDE.const(32, size)}"))
    body.fault(context.STOPPED, body.op(f"and i32 {oversized}, %all_lanes"), "%addresses")
    whole = body.bits(body.op(f"icmp eq {WORDS} %read, {WIDE.const(32, size)}"))
    # Lanes with a source size of 0 read nothing: their addresses may be anywhere.
    empty = body.bits(body.op(f"icmp eq {WORDS} %read, zeroinitializer"))
    excluded = body.op(f"or i32 {body.op(f'or i32 {whole}, {empty}')}, {oversized}")
    partial = body.op(f"and i32 {body.op(f'xor i32 {excluded}, -1')}, %all_lanes")
    loaded = _loaded(body, 32, size // 4, "%addresses", body.op(f"and i32 {whole}, %all_lanes"))
    body.begin_unless(body.op(f"icmp eq i32 {partial}, 0"), "store", "bytes")
    words_by_bytes = _bytes(body, size, checks.check_alignment(body, "%addresses", partial, size))
    body.fall_into("store")
    values = []
    for word, part in zip(words_by_bytes, loaded, strict=True):
        by_bytes = body.op(f"phi {WORDS} [ zeroinitializer, %entry ], [ {word}, %bytes ]")
        values.append((part, by_bytes))
    # Each lane has the word by one of the two ways, and zeros by the other.
    stored = [f"{WORDS} {body.op(f'or {WORDS} {part}, {by_bytes}')}" for part, by_bytes in values]
    store_arguments = (f"{WORDS} %targets", "i32 %all_lanes", "ptr %ctx", "ptr %scratch")
    body.do(body.call("void", ("shared", "store", 32, size // 4), *store_arguments, *stored))
    body.do("ret void")
    arguments = (
        f"{WORDS} %targets",
        f"{ADDRESSES} %addresses",
        f"{WORDS} %read",
        "i32 %all_lanes",
        "ptr %ctx",
        "ptr %site",
        "ptr %scratch",
    )
    return body, body.text("void", key, arguments)


def _loaded(body: FunctionWriter, bits: int, count: int, addresses: str, lanes: str) -> list[str]:
    """Load a value of each lane for each register; lanes outside of `lanes` get zeros."""
    kind = result_type(bits, count)
    arguments = (f"{ADDRESSES} {addresses}", f"i32 {lanes}", "ptr %ctx", "ptr %site")
    loaded = body.op(body.call(kind, ("global", "fetch", bits, count), *arguments))
    return [body.op(f"extractvalue {kind} {loaded}, {index}") for index in range(count)]


def _bytes(body: FunctionWriter, size: int, lanes: str) -> list[str]:
    """Load the words of lanes that read only part of them, byte by byte."""
    words = ["zeroinitializer"] * (size // 4)
    for offset in range(size):
        reads = body.bits(body.op(f"icmp ugt {WORDS} %read, {WIDE.const(32, offset)}"))
        address = body.op(f"add {ADDRESSES} %addresses, {WIDE.const(64, offset)}")
        (byte,) = _loaded(body, 8, 1, address, body.op(f"and i32 {reads}, {lanes}"))
        wide = body.op(f"zext {WIDE.ints(8)} {byte} to {WORDS}")
        shifted = body.op(f"shl {WORDS} {wide}, {WIDE.const(32, 8 * (offset % 4))}")
        words[offset // 4] = body.op(f"or {WORDS} {words[offset // 4]}, {shifted}")
    return words
