# SPDX-License-Identifier: Apache-2.0
"""Performs atomics lane by lane; this is atomic, as no other lane of the launch runs at the same time."""

from __future__ import annotations

from verl_kernel.env.emulator.errors import NotKnown
from verl_kernel.env.emulator.library import accesses, checks
from verl_kernel.env.emulator.library.checks import AddressCheck
from verl_kernel.env.emulator.library.context import FunctionWriter
from verl_kernel.env.emulator.lowering import floats
from verl_kernel.env.emulator.lowering.writer import FLOATS, SCALAR, WIDE, Key, ValueForm
from verl_kernel.env.emulator.ptx.program import BITS

_LOGIC = ("and", "or", "xor")
_BITS, _WHOLE = ("b32", "b64"), ("u32", "s32", "u64", "s64")
_FLOATS = ("f32", "f64", "f16", "bf16", "f16x2", "bf16x2")
_KINDS = {
    "add": (*_WHOLE, *_FLOATS),
    "min": (*_WHOLE, *_FLOATS),
    "max": (*_WHOLE, *_FLOATS),
    "inc": ("u32",),
    "dec": ("u32",),
    "exch": _BITS,
    "cas": ("b16", *_BITS),
    **dict.fromkeys(_LOGIC, _BITS),
}
"""Types for which each operation is defined."""


def atomic_text(key: Key) -> tuple[FunctionWriter, str]:
    """`<room>_atomic_<change>_<kind>_<whole>[_block](addresses, lanes, ctx, site, value, other) -> old values`.

    Each address is a multiple of `whole` numbers of the type. With `block`, it is atomic for its block only.
    """
    room, change, kind, whole = str(key[0]), str(key[2]), str(key[3]), int(key[4])
    bits = BITS[kind]
    if kind not in _KINDS[change]:
        raise NotKnown(f"the emulator does not know the atomic {change} of {kind}")
    body, numbers = FunctionWriter(), WIDE.ints(bits)
    if room == "global":
        check = checks.check_global(body, "atomic", bits // 8)
        # A vector of numbers is aligned as a whole, so only its first address is checked for all of it.
        lanes, base = checks.check_alignment(body, "%addresses", check.lanes, whole * bits // 8), "null"
        checked: AddressCheck | None = check
    else:
        checked = None
        base, lanes = accesses.shared_lanes(body, bits // 8)
        lanes = checks.check_alignment(body, "%addresses", lanes, whole * bits // 8, 32)
    checks.watch(body, room, "block_atomic" if len(key) > 5 else "atomic", bits=bits, count=1, lanes=lanes)
    # Lanes follow each other: those with the same address see what earlier ones have stored.
    body.do(f"%result = alloca {numbers}, align 64")
    body.do(f"store {numbers} zeroinitializer, ptr %result")
    body.fall_into("begin")

    def each(lane: str) -> None:
        width = 64 if room == "global" else 32
        address = body.op(f"extractelement {WIDE.ints(width)} %addresses, i32 {lane}")
        pointer = (
            body.op(f"inttoptr i64 {address} to ptr")
            if room == "global"
            else body.op(f"getelementptr i8, ptr {base}, i32 {address}")
        )
        old = body.op(f"load i{bits}, ptr {pointer}, align 1")
        value, replacement = (body.op(f"extractelement {numbers} {name}, i32 {lane}") for name in ("%value", "%other"))
        new = _changed(body, room, change, kind, old=old, value=value, replacement=replacement)
        body.do(f"store i{bits} {new}, ptr {pointer}, align 1")
        before = body.op(f"load {numbers}, ptr %result")
        body.do(
            f"store {numbers} {body.op(f'insertelement {numbers} {before}, i{bits} {old}, i32 {lane}')}, ptr %result"
        )

    body.each_lane(lanes, "begin", each)
    if checked is not None:
        _mark(body, checked, lanes, bits)
    body.do(f"ret {numbers} {body.op(f'load {numbers}, ptr %result')}")
    addresses = WIDE.ints(64 if room == "global" else 32)
    arguments = (
        f"{addresses} %addresses",
        "i32 %lanes",
        "ptr %ctx",
        "ptr %site",
        f"{numbers} %value",
        f"{numbers} %other",
    )
    return body, body.text(numbers, key, arguments)


def _mark(body: FunctionWriter, checked: AddressCheck, lanes: str, bits: int) -> None:
    """Mark the changed bytes as written, where writes are tracked."""
    body.begin_if(checked.is_watched, "mark", "marked")
    pointers, mask = accesses.shadow_of(body, lanes, checked.shadows)
    accesses.scatter(body, WIDE.const(bits, int("01" * (bits // 8), 16)), pointers, mask, bits)
    body.fall_into("marked")


def _changed(body: FunctionWriter, room: str, change: str, kind: str, *, old: str, value: str, replacement: str) -> str:
    """Compute the new value."""
    bits = BITS[kind]
    number = f"i{bits}"
    if change == "exch":
        return value
    if change == "cas":
        return body.op(
            f"select i1 {body.op(f'icmp eq {number} {old}, {value}')}, {number} {replacement}, {number} {old}"
        )
    if change in _LOGIC:
        return body.op(f"{change} {number} {old}, {value}")
    if kind in FLOATS or kind in ("f16x2", "bf16x2"):
        return _changed_float(body, room, change, kind, old=old, value=value)
    if change == "add":
        return body.op(f"add {number} {old}, {value}")
    if change in ("min", "max"):
        return body.overloaded(("s" if kind.startswith("s") else "u") + change, number, old, value)
    return _counted(body, change, number, old, value)


def _counted(body: FunctionWriter, change: str, number: str, old: str, value: str) -> str:
    """Compute `inc` and `dec`, which wrap at the operand."""
    if change == "inc":
        wraps = body.op(f"icmp uge {number} {old}, {value}")
        return body.op(f"select i1 {wraps}, {number} 0, {number} {body.op(f'add {number} {old}, 1')}")
    is_zero, is_above = body.op(f"icmp eq {number} {old}, 0"), body.op(f"icmp ugt {number} {old}, {value}")
    wraps = body.op(f"or i1 {is_zero}, {is_above}")
    return body.op(f"select i1 {wraps}, {number} {value}, {number} {body.op(f'sub {number} {old}, 1')}")


def _changed_float(body: FunctionWriter, room: str, change: str, kind: str, *, old: str, value: str) -> str:
    """Compute a float's new value; only sums of float32 in global memory flush subnormals to zero (PTX ISA)."""
    form, element = (ValueForm(2), FLOATS[kind[:-2]]) if kind.endswith("x2") else (SCALAR, FLOATS[kind])
    number, own = f"i{BITS[kind]}", form.type(element)
    current, operand = (body.op(f"bitcast {number} {item} to {own}") for item in (old, value))
    is_flushed = (room, change, kind) == ("global", "add", "f32")
    if is_flushed:
        current, operand = (floats.flush(body, item, form) for item in (current, operand))
    if element in ("half", "bfloat"):
        current, operand = (floats.widen(body, item, element, "float", form) for item in (current, operand))
    wide = "float" if element in ("half", "bfloat") else element
    if change == "add":
        total = body.op(f"fadd {form.type(wide)} {current}, {operand}")
    else:
        # A NaN in memory or in the operand is ignored.
        total = body.overloaded(f"{change}num", form.type(wide), current, operand)
    if element in ("half", "bfloat"):
        total = floats.narrow(body, total, "float", element, form)
    if is_flushed:
        total = floats.flush(body, total, form)
    return body.op(f"bitcast {own} {total} to {number}")
