# SPDX-License-Identifier: Apache-2.0
"""Matrices that the lanes of a warp hold together: their products and loads (PTX ISA, "mma.sync" and "ldmatrix").

In an m16n8 product, lane l holds in `c0 c1 c2 c3` rows l / 4 and l / 4 + 8, each at columns 2 (l % 4) and 2 (l % 4) +
1. A's registers come in pairs for these two rows, B's hold column l / 4; both hold elements along k, 32 bits per
register, first those of the lower half of k. Products are exact; sums are float32 (or float16, float64, int32), in the
order of k. The lowest 13 bits of TF32 factors are ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from verl_kernel.env.emulator.errors import NotKnown
from verl_kernel.env.emulator.library import checks, context
from verl_kernel.env.emulator.library.accesses import give_back, result_type, shared_lanes
from verl_kernel.env.emulator.library.context import FunctionWriter
from verl_kernel.env.emulator.lowering import floats
from verl_kernel.env.emulator.lowering.writer import LANES, WIDE, Key

WORDS, FLOATS32 = WIDE.ints(32), WIDE.type("float")


@dataclass(frozen=True)
class Factor:
    """A type of factors: how many a register holds, and a function that extracts one as float32 or int32."""

    count: int
    element: Callable[[FunctionWriter, str, int], str]


def _half(body: FunctionWriter, register: str, index: int) -> str:
    shifted = body.op(f"lshr {WORDS} {register}, {WIDE.const(32, 16 * index)}")
    bits = body.resized(shifted, 32, 16, WIDE)
    half = body.op(f"bitcast {WIDE.ints(16)} {bits} to {WIDE.type('half')}")
    return floats.widen(body, half, "half", "float", WIDE)


def _brain(body: FunctionWriter, register: str, index: int) -> str:
    code = "and" if index else "shl"
    # A bfloat16 is the upper half of a float32.
    bits = body.op(f"{code} {WORDS} {register}, {WIDE.const(32, 0xFFFF0000 if index else 16)}")
    return body.op(f"bitcast {WORDS} {bits} to {FLOATS32}")


def _tensor(body: FunctionWriter, register: str, index: int) -> str:
    # A GPU reads 19 bits of a TF32 factor and ignores the others.
    bits = body.op(f"and {WORDS} {register}, {WIDE.const(32, 0xFFFFE000)}")
    return body.op(f"bitcast {WORDS} {bits} to {FLOATS32}")


def _eight(kind: str) -> Callable[[FunctionWriter, str, int], str]:
    def element(body: FunctionWriter, register: str, index: int) -> str:
        byte = body.op(f"lshr {WORDS} {register}, {WIDE.const(32, 8 * index)}")
        pair = body.resized(byte, 32, 16, WIDE)
        halves = body.op(body.call(WORDS, ("from_eight", kind), f"{WIDE.ints(16)} {pair}"))
        return _half(body, halves, 0)

    return element


def _byte(is_signed: bool) -> Callable[[FunctionWriter, str, int], str]:
    def element(body: FunctionWriter, register: str, index: int) -> str:
        top = body.op(f"shl {WORDS} {register}, {WIDE.const(32, 24 - 8 * index)}")
        return body.op(f"{'ashr' if is_signed else 'lshr'} {WORDS} {top}, {WIDE.const(32, 24)}")

    return element


FACTORS = {
    "f16": Factor(2, _half),
    "bf16": Factor(2, _brain),
    "tf32": Factor(1, _tensor),
    "e4m3": Factor(4, _eight("e4m3")),
    "e5m2": Factor(4, _eight("e5m2")),
    "s8": Factor(4, _byte(True)),
    "u8": Factor(4, _byte(False)),
}
"""How the elements of each type lie in a register."""
SUMS = {"f32": ("f16", "bf16", "tf32", "e4m3", "e5m2"), "f16": ("f16", "e4m3", "e5m2"), "s32": ("s8", "u8")}
"""Types of factors for each type of sums."""


def product_text(key: Key) -> tuple[FunctionWriter, str]:
    """`product_<shape>_<a>_<b>_<sum>_<saturates>(a..., b..., c...) -> d...`."""
    shape, first, second, total = map(str, key[1:5])
    # float64 has a layout of its own.
    if (shape, first, total) == ("m8n8k4", "f64", "f64"):
        return _doubles(key)
    if not _is_known(shape, first, second, total):
        raise NotKnown(f"the emulator does not know the product of matrices {shape} of {first} and {second} as {total}")
    depth, body = int(shape.removeprefix("m16n8k")), FunctionWriter()
    span = 4 * FACTORS[first].count
    halves = depth // span
    names = [f"%a{index}" for index in range(2 * halves)], [f"%b{index}" for index in range(halves)]
    results = 2 if total == "f16" else 4
    addends = _addends(body, total)
    sums = [WIDE.const(32, 0)] * 4 if total == "s32" else addends  # bytes' products alone cannot overflow
    factors = [
        [[FACTORS[kind].element(body, name, index) for index in range(FACTORS[kind].count)] for name in group]
        for kind, group in zip((first, second), names, strict=True)
    ]
    element = "i32" if total == "s32" else "float"
    for step in range(depth):
        half, offset = divmod(step, span)
        column, index = divmod(offset, FACTORS[first].count)
        rows = [_from_lanes(body, element, factors[0][2 * half + lower][index], _row(column)) for lower in (0, 1)]
        columns = [_from_lanes(body, element, factors[1][half][index], _column(column, odd)) for odd in (0, 1)]
        sums = [_added(body, total, rows[number // 2], columns[number % 2], sums[number]) for number in range(4)]
    if total == "s32":
        # The addend comes last, as only the whole sum saturates.
        sums = [_whole_sum(body, *pair, bool(key[5])) for pair in zip(sums, addends, strict=True)]
    _results(body, total, sums)
    arguments = [f"{WORDS} {name}" for name in (*names[0], *names[1], *(f"%c{index}" for index in range(results)))]
    return body, body.text(result_type(32, results), key, arguments)


def registers(shape: str, first: str, second: str, total: str) -> list[int]:
    """Return a lane's register counts for result, factors and addend; empty if there is no such product."""
    if (shape, first, total) == ("m8n8k4", "f64", "f64"):
        return [2, 1, 1, 2]
    if not _is_known(shape, first, second, total):
        return []
    halves = int(shape.removeprefix("m16n8k")) // (4 * FACTORS[first].count)
    results = 2 if total == "f16" else 4
    return [results, 2 * halves, halves, results]


def _addends(body: FunctionWriter, total: str) -> list[str]:
    if total == "s32":
        return [f"%c{index}" for index in range(4)]
    if total == "f32":
        return [body.op(f"bitcast {WORDS} %c{index} to {FLOATS32}") for index in range(4)]
    return [_half(body, f"%c{pair}", index) for pair in (0, 1) for index in (0, 1)]


def _from_lanes(body: FunctionWriter, element: str, value: str, lanes: list[int]) -> str:
    return body.shuffle(element, value, lanes)


def _row(part: int) -> list[int]:
    """Return for each lane the lane that holds a part along k of its row of A."""
    return [lane // 4 * 4 + part for lane in range(LANES)]


def _column(part: int, odd: int) -> list[int]:
    """Return for each lane the lane that holds a part along k of its first or second column of B."""
    return [(2 * (lane % 4) + odd) * 4 + part for lane in range(LANES)]


def _added(body: FunctionWriter, total: str, row: str, column: str, addend: str) -> str:
    if total == "s32":
        return body.op(f"add {WORDS} {body.op(f'mul {WORDS} {row}, {column}')}, {addend}")
    return body.overloaded("fma", FLOATS32, row, column, addend)


def _is_known(shape: str, first: str, second: str, total: str) -> bool:
    """Whether there is such a product: two kinds of bytes may be mixed, and k is one or two times a lane's elements."""
    if not shape.startswith("m16n8k") or first not in SUMS.get(total, ()) or second not in SUMS[total]:
        return False
    count = FACTORS[first].count
    # Two 8-bit floats, or signed and unsigned bytes, may be mixed: they have as many elements a register.
    is_alike = first == second or count == FACTORS[second].count == 4
    return is_alike and int(shape.removeprefix("m16n8k")) in (4 * count, 8 * count)


def _whole_sum(body: FunctionWriter, total: str, addend: str, saturates: bool) -> str:
    if saturates:
        return body.overloaded("sadd.sat", WORDS, total, addend)
    return body.op(f"add {WORDS} {total}, {addend}")


def _results(body: FunctionWriter, total: str, sums: list[str]) -> None:
    if total == "s32":
        parts = sums
    elif total == "f32":
        parts = [body.op(f"bitcast {FLOATS32} {value} to {WORDS}") for value in sums]
    else:
        parts = [_paired(body, sums[index], sums[index + 1]) for index in (0, 2)]
    kind, value = result_type(32, len(parts)), "poison"
    for index, part in enumerate(parts):
        value = body.op(f"insertvalue {kind} {value}, {WORDS} {part}, {index}")
    body.do(f"ret {kind} {value}")


def _paired(body: FunctionWriter, lower: str, upper: str) -> str:
    """Round two float32 to float16 and pack them."""
    bits = []
    for value in (lower, upper):
        half = floats.narrow(body, value, "float", "half", WIDE)
        bits.append(body.resized(body.op(f"bitcast {WIDE.type('half')} {half} to {WIDE.ints(16)}"), 16, 32, WIDE))
    return body.op(f"or {WORDS} {body.op(f'shl {WORDS} {bits[1]}, {WIDE.const(32, 16)}')}, {bits[0]}")


def _doubles(key: Key) -> tuple[FunctionWriter, str]:
    """Write m8n8k4 of float64: A has row l / 4, B column l / 4, both element l % 4 of k; C as in the other products."""
    body, longs, doubles = FunctionWriter(), WIDE.ints(64), WIDE.type("double")
    a_values, b_values = (body.op(f"bitcast {longs} {name} to {doubles}") for name in ("%a0", "%b0"))
    sums = [body.op(f"bitcast {longs} {name} to {doubles}") for name in ("%c0", "%c1")]
    for step in range(4):
        row = _from_lanes(body, "double", a_values, _row(step))
        for odd in (0, 1):
            column = _from_lanes(body, "double", b_values, _column(step, odd))
            sums[odd] = body.overloaded("fma", doubles, row, column, sums[odd])
    kind, value = result_type(64, 2), "poison"
    for index, total in enumerate(sums):
        value = body.op(
            f"insertvalue {kind} {value}, {longs} {body.op(f'bitcast {doubles} {total} to {longs}')}, {index}"
        )
    body.do(f"ret {kind} {value}")
    return body, body.text(kind, key, [f"{longs} {name}" for name in ("%a0", "%b0", "%c0", "%c1")])


def matrices_text(key: Key) -> tuple[FunctionWriter, str]:
    """`matrices_<count>_<transposed>(addresses, ctx, site)`: `ldmatrix`; lanes hold the addresses of 16-byte rows."""
    body, count, is_transposed = FunctionWriter(), int(key[1]), bool(key[2])
    # PTX ISA, "ldmatrix": eight lanes have the addresses of a matrix's rows.
    used = (1 << 8 * count) - 1
    body.do(f"%lanes = add i32 0, {used - (1 << 32) if used >> 31 else used}")
    # Eight rows of 16 bytes fill all banks once.
    base, fitting = shared_lanes(body, 16, 8)
    checks.watch(body, "shared", "load", bits=32, count=4, lanes=fitting)
    aligned = checks.check_alignment(body, "%addresses", fitting, 16, 32)
    is_bad = body.op(f"icmp ne i32 {aligned}, %lanes")
    addresses = body.op(f"select i1 {is_bad}, {WIDE.ints(32)} zeroinitializer, {WIDE.ints(32)} %addresses")
    limit = body.context(context.SHARED_BYTES, "i64")
    # Lanes with a bad address read row 0 after the fault: it must exist.
    body.begin_if(body.op(f"icmp ult i64 {limit}, 16"), "none", "some")
    give_back(body, 32, [WIDE.const(32, 0)] * count)
    body.label("some")
    give_back(body, 32, [_matrix(body, base, addresses, number, is_transposed) for number in range(count)])
    return body, body.text(result_type(32, count), key, (f"{WIDE.ints(32)} %addresses", "ptr %ctx", "ptr %site"))


def _matrix(body: FunctionWriter, base: str, addresses: str, number: int, is_transposed: bool) -> str:
    rows, lanes = [], 4
    for row in range(8):
        address = body.op(f"extractelement {WIDE.ints(32)} {addresses}, i32 {8 * number + row}")
        rows.append(body.op(f"load <4 x i32>, ptr {body.op(f'getelementptr i8, ptr {base}, i32 {address}')}, align 1"))
    while len(rows) > 1:
        rows = [
            body.shuffle("i32", even, range(2 * lanes), lanes, odd)
            for even, odd in zip(rows[::2], rows[1::2], strict=True)
        ]
        lanes *= 2
    if not is_transposed:
        return rows[0]
    halves = body.op(f"bitcast {WIDE.ints(32)} {rows[0]} to <{2 * LANES} x i16>")
    order = [(2 * (lane % 4) + part) * 8 + lane // 4 for lane in range(LANES) for part in range(2)]
    halves = body.shuffle("i16", halves, order, 2 * LANES)
    return body.op(f"bitcast <{2 * LANES} x i16> {halves} to {WIDE.ints(32)}")
