# SPDX-License-Identifier: Apache-2.0
"""Asynchronous copies from global to shared memory, done at once."""

from __future__ import annotations

from verl_kernel.env.executor.library import checks, context
from verl_kernel.env.executor.library.accesses import ADDRESSES, result_type
from verl_kernel.env.executor.library.function import Function
from verl_kernel.env.executor.lowering.writer import WIDE, Key

WORDS = WIDE.ints(32)


def copy_text(key: Key) -> tuple[Function, str]:
    """`copy_<size>(targets, addresses, read, all_lanes, ctx, site, scratch)`: zeros beyond the bytes to be read."""
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
    """What lanes load, a value for each register; zeros in the others."""
    kind = result_type(bits, count)
    places = (f"{ADDRESSES} {addresses}", f"i32 {lanes}", "ptr %ctx", "ptr %site")
    found = made.op(made.call(kind, ("global", "fetch", bits, count), *places))
    return [made.op(f"extractvalue {kind} {found}, {place}") for place in range(count)]


def _bytes(made: Function, size: int, lanes: str) -> list[str]:
    """Words of lanes that read a part of them, byte by byte."""
    words = ["zeroinitializer"] * (size // 4)
    for place in range(size):
        reads = made.bits(made.op(f"icmp ugt {WORDS} %read, {WIDE.const(32, place)}"))
        address = made.op(f"add {ADDRESSES} %addresses, {WIDE.const(64, place)}")
        (byte,) = _loaded(made, 8, 1, address, made.op(f"and i32 {reads}, {lanes}"))
        wide = made.op(f"zext {WIDE.ints(8)} {byte} to {WORDS}")
        moved = made.op(f"shl {WORDS} {wide}, {WIDE.const(32, 8 * (place % 4))}")
        words[place // 4] = made.op(f"or {WORDS} {words[place // 4]}, {moved}")
    return words
