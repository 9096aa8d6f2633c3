# SPDX-License-Identifier: Apache-2.0
"""Integers, predicates, bits and bytes against Python's integers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.env.emulator.ptx import compare, cross, each, evaluate, paired, ways

WIDTHS = {16: np.uint16, 32: np.uint32, 64: np.uint64}
AMOUNTS = [0, 1, 7, 15, 16, 17, 31, 32, 33, 63, 64, 65, 0x80000000, 0xFFFFFFFF]
RELATIONS = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip
SPELT = {
    "b32 {d}, -1": 0xFFFFFFFF, "b32 {d}, 0x10": 16, "b32 {d}, 0xFFFFFFFFU": 0xFFFFFFFF, "b32 {d}, 12U": 12,
    "b32 {d}, 0f3F800000": 0x3F800000, "b32 {d}, 0": 0, "b32 {d}, -0x10": 0xFFFFFFF0, "b32 {d}, 017": 15,
    "b64 {d}, 0d4009000000000000": 0x4009000000000000, "f64 {d}, 0f3F800000": 0x3FF0000000000000,
}  # fmt: skip


def signed(value, bits):
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value


def quotient(a, b):
    whole = abs(a) // abs(b)
    return whole if (a < 0) == (b < 0) else -whole


def corners(bits):
    return [0, 1, 2, 3, 7, -1, -2, -7, (1 << bits - 1) - 1, 1 << bits - 1, (1 << bits - 1) + 1, 0x5A5A5A5A5A5A5A5A]


def few(bits):
    return [0, 1, -1, 3, (1 << bits - 1) - 1, 1 << bits - 1]


# Opcodes with the letters of their types, and what they compute of integers of so many bits.
ONE = {
    "not.b": lambda bits, a: ~a, "cnot.b": lambda bits, a: a == 0, "neg.s": lambda bits, a: -a,
    "abs.s": lambda bits, a: abs(a),
}  # fmt: skip
TWO = {
    "add.su": lambda bits, a, b: a + b, "sub.su": lambda bits, a, b: a - b, "mul.lo.su": lambda bits, a, b: a * b,
    "mul.hi.su": lambda bits, a, b: a * b >> bits, "min.su": lambda bits, a, b: min(a, b),
    "max.su": lambda bits, a, b: max(a, b), "and.b": lambda bits, a, b: a & b, "or.b": lambda bits, a, b: a | b,
    "xor.b": lambda bits, a, b: a ^ b,
}  # fmt: skip
QUOTIENTS = {"div.su": lambda bits, a, b: quotient(a, b), "rem.su": lambda bits, a, b: a - quotient(a, b) * b}
SUMS = {"mad.lo.su": lambda bits, a, b, c: a * b + c, "mad.hi.su": lambda bits, a, b, c: (a * b >> bits) + c}
COMPARISONS = {
    f"setp.{name}.{'sub' if name in ('eq', 'ne') else 'su'}": lambda bits, a, b, holds=holds: holds(a, b)
    for name, holds in RELATIONS.items()
} | {
    f"setp.{name}.u": lambda bits, a, b, holds=RELATIONS[other]: holds(a, b)
    for name, other in {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.items()
}
OPERATIONS = {
    "of one": (ONE, [corners]),
    "of two": (TWO, [corners, corners]),
    "quotients": (QUOTIENTS, [corners, lambda bits: [item for item in corners(bits) if item]]),
    "with addends": (SUMS, [few, few, few]),
    "comparisons": (COMPARISONS, [corners, corners]),
}


def check(group, bits, columns, *, is_uniform=False):
    functions = {}
    for name, function in group.items():
        opcode, _, letters = name.rpartition(".")
        functions |= {f"{opcode}.{letter}{bits}": function for letter in letters}
    inputs, kind = dict(zip("abc", columns, strict=False)), bool if group is COMPARISONS else WIDTHS[bits]
    operands = ", ".join(f"%{name}" for name in inputs)

    def wanted(opcode, *row):
        typed = [signed(item, bits) for item in row] if opcode.endswith(f".s{bits}") else row
        return functions[opcode](bits, *typed) & (1 << bits) - 1

    compare({name: f"{name} {{d}}, {operands};" for name in functions}, kind, inputs, wanted, is_uniform=is_uniform)


@pytest.mark.parametrize("bits, is_uniform", ways(WIDTHS))
@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_are_those_of_integers(name, bits, is_uniform):
    group, values = OPERATIONS[name]
    check(group, bits, cross(*(numbers(bits) for numbers in values), dtype=WIDTHS[bits]), is_uniform=is_uniform)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from([16, 32, 64]), st.data())
def test_operations_on_any_values(bits, data):
    numbers = st.lists(st.integers(0, (1 << bits) - 1), min_size=32, max_size=32)
    check(TWO, bits, [np.array(data.draw(numbers), WIDTHS[bits]) for _ in range(2)])


@pytest.mark.parametrize("kind", ["s16", "u16", "s32", "u32", "s64", "u64"])
def test_a_division_by_zero_does_not_stop_the_host(kind):
    zeros = np.zeros(32, WIDTHS[int(kind[1:])])
    lines = {name: f"{name}.{kind} {{d}}, %a, %b;" for name in ("div", "rem")}
    assert set(each(lines, zeros.dtype, {"a": zeros + 5, "b": zeros})) == {"div", "rem"}


@pytest.mark.parametrize("kind, is_uniform", ways(["s16", "u16", "s32", "u32"]))
def test_a_distance_is_added(kind, is_uniform):
    bits = int(kind[1:])
    inputs = dict(zip("abc", cross(corners(bits), corners(bits), few(bits), dtype=WIDTHS[bits]), strict=True))

    def wanted(name, x, y, addend):
        typed = [signed(item, bits) if kind.startswith("s") else item for item in (x, y)]
        return abs(typed[0] - typed[1]) + addend & (1 << bits) - 1

    compare({"sad": f"sad.{kind} {{d}}, %a, %b, %c;"}, WIDTHS[bits], inputs, wanted, is_uniform=is_uniform)


def test_sums_of_signed_integers_are_clamped():
    a, b = cross(corners(32), corners(32), dtype=np.uint32)

    def wanted(name, x, y):
        whole = signed(x, 32) + signed(y, 32) * (1 if name == "add" else -1)
        return min(max(whole, -(2**31)), 2**31 - 1) & 0xFFFFFFFF

    compare({name: f"{name}.sat.s32 {{d}}, %a, %b;" for name in ("add", "sub")}, np.uint32, {"a": a, "b": b}, wanted)


def test_products_of_four_bytes_are_added():
    words = [0, 0x01020304, 0xFFFFFFFF, 0x80808080, 0x7F80FF01, 0x12345678]
    a, b, c = cross(words, words, [0, 5, 0xFFFFFFF0], dtype=np.uint32)

    def wanted(name, x, y, addend):
        kinds = name.split(".")[1:]
        rows = [
            [signed(item >> 8 * n & 255, 8) if kind == "s32" else item >> 8 * n & 255 for n in range(4)]
            for item, kind in ((x, kinds[0]), (y, kinds[1]))
        ]
        return sum(p * q for p, q in zip(*rows, strict=True)) + addend & 0xFFFFFFFF

    names = [f"dp4a.{one}.{other}" for one in ("s32", "u32") for other in ("s32", "u32")]
    compare({name: f"{name} {{d}}, %a, %b, %c;" for name in names}, np.uint32, {"a": a, "b": b, "c": c}, wanted)


def test_a_choice_by_a_sign():
    columns = dict(zip("abc", cross([1, 5], [7, 9], corners(32)), strict=True))
    lines = {"slct": "slct.b32.s32 {d}, %a, %b, %c;"}
    compare(lines, np.uint32, columns, lambda _, yes, no, sign: no if sign >> 31 else yes)


@pytest.mark.parametrize("kind, is_uniform", ways(["s16", "u16", "s32", "u32"]))
def test_wide_products(kind, is_uniform):
    bits = int(kind[1:])
    a, b = cross(corners(bits), corners(bits), dtype=WIDTHS[bits])
    c = np.arange(len(a)).astype(WIDTHS[2 * bits]) * WIDTHS[2 * bits](0x0123)
    lines = {"mul": f"mul.wide.{kind} {{d}}, %a, %b;", "mad": f"mad.wide.{kind} {{d}}, %a, %b, %c;"}

    def wanted(name, x, y, addend):
        x, y = (signed(item, bits) if kind[0] == "s" else item for item in (x, y))
        return x * y + (addend if name == "mad" else 0) & (1 << 2 * bits) - 1

    compare(lines, WIDTHS[2 * bits], {"a": a, "b": b, "c": c}, wanted, is_uniform=is_uniform)


@pytest.mark.parametrize("is_uniform", [False, True])
def test_a_comparison_combines_with_a_predicate(is_uniform):
    a, b = (np.array(values, np.uint32) for values in ([1, 1, 2, 2], [2, 2, 1, 1]))
    c = np.array([False, True] * 2)
    code = "".join(f"setp.lt.{how}.u32 %{how}1|%{how}2, %a, %b, %c;" for how in ("and", "or", "xor"))
    code += "setp.lt.and.u32 %n1|%n2, %a, %b, !%c;"
    outputs = dict.fromkeys(["and1", "and2", "or1", "or2", "xor1", "xor2", "n1", "n2"], bool)
    found = evaluate(code, {"a": a, "b": b, "c": c}, outputs, is_uniform=is_uniform)
    assert {name: [int(item) for item in row] for name, row in found.items()} == {
        "and1": [0, 1, 0, 0], "and2": [0, 0, 0, 1], "or1": [1, 1, 0, 1], "or2": [0, 1, 1, 1],
        "xor1": [1, 0, 0, 1], "xor2": [0, 1, 1, 0], "n1": [1, 0, 0, 0], "n2": [0, 0, 1, 0],
    }  # fmt: skip


def test_both_results_see_the_predicate_as_it_was():
    inputs = {"a": np.full(2, 2, np.uint32), "b": np.full(2, 1, np.uint32), "c": np.array([True, False])}
    found = evaluate("mov.pred %p, %c; setp.lt.and.u32 %p|%q, %a, %b, %p;", inputs, {"p": bool, "q": bool})
    assert ([*found["p"]], [*found["q"]]) == ([False, False], [True, False])


@pytest.mark.parametrize("bits, is_uniform", ways(WIDTHS))
def test_a_choice_by_a_predicate(bits, is_uniform):
    columns = cross(corners(bits), few(bits), [0, 1], dtype=WIDTHS[bits])
    inputs = {"a": columns[0], "b": columns[1], "c": columns[2].astype(bool)}
    lines = {"selp": f"selp.b{bits} {{d}}, %a, %b, %c;"}
    compare(lines, WIDTHS[bits], inputs, lambda _, a, b, c: a if c else b, is_uniform=is_uniform)


@pytest.mark.parametrize("is_uniform", [False, True])
def test_predicates_are_bits(is_uniform):
    lines = {name: f"{name}.pred {{d}}, %a, %b;" for name in ("and", "or", "xor")}
    lines |= {"not": "not.pred {d}, %a;", "mov": "mov.pred {d}, %b;", "all": "mov.pred {d}, -1;"}
    wanted = {
        "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b, "not": lambda a, b: 1 - a,
        "mov": lambda a, b: b, "all": lambda a, b: 1,
    }  # fmt: skip
    inputs = {"a": np.array([False, False, True, True]), "b": np.array([False, True, False, True])}
    compare(lines, bool, inputs, lambda name, a, b: wanted[name](a, b), is_uniform=is_uniform)


def limbs(value, count=3):
    return [value >> 32 * place & 0xFFFFFFFF for place in range(count)]


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, (1 << 96) - 1)] * 2), min_size=32, max_size=32))
def test_carries_run_through_integers_of_many_words(pairs):
    rows = [[*limbs(a), *limbs(b)] for a, b in [*pairs[:-2], ((1 << 96) - 1, 1), (0, 1)]]
    inputs = {name: np.array(column, np.uint32) for name, column in zip("abcxyz", zip(*rows, strict=True), strict=True)}
    code = (
        "add.cc.u32 %s0, %a, %x; addc.cc.u32 %s1, %b, %y; addc.u32 %s2, %c, %z;"
        "sub.cc.u32 %m0, %a, %x; subc.cc.u32 %m1, %b, %y; subc.u32 %m2, %c, %z;"
        "mad.lo.cc.u32 %q0, %a, %x, %b; madc.hi.cc.u32 %q1, %a, %x, %c; addc.u32 %q2, 0, 0;"
    )
    found = evaluate(code, inputs, dict.fromkeys([f"{name}{place}" for name in "smq" for place in range(3)], np.uint32))
    for place, row in enumerate(rows):
        a, b = (sum(word << 32 * shift for shift, word in enumerate(part)) for part in (row[:3], row[3:]))
        wanted = {"s": a + b, "m": a - b, "q": row[0] * row[3] + row[1] + (row[2] << 32)}
        for name, value in wanted.items():
            assert [int(found[f"{name}{part}"][place]) for part in range(3)] == limbs(value), name


def test_carries_of_words_of_64_bits():
    a, b = cross([0, 1, -1, 1 << 63], [0, 1, -1, 1 << 63], dtype=np.uint64)
    code = "add.cc.u64 %s, %a, %b; addc.u64 %c, 0, 0; sub.cc.u64 %m, %a, %b; subc.u64 %w, 0, 0;"
    found = evaluate(code, {"a": a, "b": b}, dict.fromkeys("scmw", np.uint64))
    for x, y, *got in zip(a, b, *(found[name] for name in "scmw"), strict=True):
        x, y, mask = int(x), int(y), (1 << 64) - 1
        assert [int(item) for item in got] == [x + y & mask, x + y >> 64, x - y & mask, -(x < y) & mask]


def shifted(opcode, value, amount):
    """PTX: amounts beyond the width are the width."""
    bits = int(opcode[-2:])
    amount = min(amount, bits)
    if opcode.startswith("shl"):
        return value << amount & (1 << bits) - 1
    return (signed(value, bits) if ".s" in opcode else value) >> amount & (1 << bits) - 1


@pytest.mark.parametrize("bits, is_uniform", ways(WIDTHS))
def test_shifts_beyond_the_width(bits, is_uniform):
    a, b = cross(corners(bits), AMOUNTS, dtype=WIDTHS[bits])[0], cross(corners(bits), AMOUNTS)[1]
    lines = {f"{name}{bits}": f"{name}{bits} {{d}}, %a, %b;" for name in ("shl.b", "shr.u", "shr.s")}
    compare(lines, WIDTHS[bits], {"a": a, "b": b}, shifted, is_uniform=is_uniform)


@pytest.mark.parametrize("bits", WIDTHS)
def test_shifts_by_constants(bits):
    shifts = [(f"{name}{bits}", far) for name in ("shl.b", "shr.u", "shr.s") for far in (0, 1, 15, 16, 31, 32, 33, 64)]
    lines = {shift: "{} {{d}}, %a, {};".format(*shift) for shift in shifts}
    values = {"a": cross(corners(bits), dtype=WIDTHS[bits])[0]}
    compare(lines, WIDTHS[bits], values, lambda shift, a: shifted(shift[0], a, shift[1]))


@pytest.mark.parametrize("is_uniform", [False, True])
def test_funnel_shifts(is_uniform):
    columns = cross([0x12345678, 0x89ABCDEF, 0], [0xDEADBEEF, 1], [0, 1, 16, 31, 32, 33, 63, 0xFFFFFFFF])
    lines = {f"{way}.{how}": f"shf.{way}.{how}.b32 {{d}}, %a, %b, %c;" for way in "lr" for how in ("wrap", "clamp")}

    def wanted(name, low, high, amount):
        both, amount = high << 32 | low, amount & 31 if "wrap" in name else min(amount, 32)
        return (both << amount >> 32 if name[0] == "l" else both >> amount) & 0xFFFFFFFF

    compare(lines, np.uint32, dict(zip("abc", columns, strict=True)), wanted, is_uniform=is_uniform)


@pytest.mark.parametrize("kind, is_uniform", ways(["u32", "s32", "u64", "s64"]))
def test_fields_taken_out(kind, is_uniform):
    bits = int(kind[1:])
    fields = [(0, 1), (3, 4), (23, 1), (0, bits), (bits - 1, 1), (bits - 4, 8), (5, 255), (16, 16)]
    lines = {field: "bfe.{} {{d}}, %a, {}, {};".format(kind, *field) for field in fields}

    def wanted(field, a):
        place, length = field[0], min(field[1], bits - field[0])
        taken = a >> place & (1 << length) - 1
        return (signed(taken, length) if kind[0] == "s" else taken) & (1 << bits) - 1

    compare(lines, WIDTHS[bits], {"a": cross(corners(bits), dtype=WIDTHS[bits])[0]}, wanted, is_uniform=is_uniform)


@pytest.mark.parametrize("bits, is_uniform", ways([32, 64]))
def test_fields_put_in(bits, is_uniform):
    a, b = cross(corners(bits), corners(bits), dtype=WIDTHS[bits])
    fields = [(0, 1), (3, 4), (0, bits), (bits - 1, 1), (bits - 4, 8), (7, 0), (bits, 4), (bits + 8, 1), (5, 255)]
    lines = {field: "bfi.b{} {{d}}, %a, %b, {}, {};".format(bits, *field) for field in fields}

    def wanted(field, a, b):
        mask = ((1 << field[1]) - 1 << field[0]) & (1 << bits) - 1
        return a << field[0] & mask | b & ~mask

    compare(lines, WIDTHS[bits], {"a": a, "b": b}, wanted, is_uniform=is_uniform)


def permuted(name, a, b, selector):
    data, value = a.to_bytes(4, "little") + b.to_bytes(4, "little"), 0
    for place in range(4):
        nibble = (0x7B40 if name == "constant" else selector) >> 4 * place & 15
        byte = data[nibble & 7]
        value |= ((0xFF if byte & 0x80 else 0) if nibble & 8 else byte) << 8 * place
    return value


@pytest.mark.parametrize("is_uniform", [False, True])
def test_bytes_are_permuted(is_uniform):
    selectors = [0x3210, 0x7654, 0xFEDC, 0xBA98, 0x0, 0x8F07, 0xFFFF1234]
    columns = cross([0x83828180, 0x03020100], [0x87868584, 0x77665544], selectors)
    lines = {"register": "prmt.b32 {d}, %a, %b, %c;", "constant": "prmt.b32 {d}, %a, %b, 0x7B40U;"}
    compare(lines, np.uint32, dict(zip("abc", columns, strict=True)), permuted, is_uniform=is_uniform)
    assert permuted("register", 0x83828180, 0x87868584, 0xBA98) == 0xFFFFFFFF  # each byte's sign is set


@pytest.mark.parametrize("is_uniform", [False, True])
def test_all_functions_of_three_bits(is_uniform):
    inputs = {name: np.array([value], np.uint32) for name, value in (("a", 0xF0), ("b", 0xCC), ("c", 0xAA))}
    tables = {table: table | (0xFFFFFF00 if table & 1 else 0) for table in range(0, 256, 17 if is_uniform else 1)}
    lines = {table: f"lop3.b32 {{d}}, %a, %b, %c, {table};" for table in tables}
    compare(lines, np.uint32, inputs, lambda table, *_: tables[table], is_uniform=is_uniform)


@pytest.mark.parametrize("bits, is_uniform", ways([32, 64]))
def test_counts_of_bits(bits, is_uniform):
    a = cross([*corners(bits), *(1 << place for place in range(bits))], dtype=WIDTHS[bits])[0]
    opcodes = [f"{name}{bits}" for name in "clz.b popc.b bfind.u bfind.s bfind.shiftamt.u bfind.shiftamt.s".split()]

    def wanted(opcode, value):
        if not opcode.startswith("bfind"):
            return value.bit_count() if opcode.startswith("popc") else bits - value.bit_length()
        differs = ~value & (1 << bits) - 1 if ".s" in opcode.replace(".shiftamt", "") and value >> bits - 1 else value
        top = differs.bit_length() - 1
        return (bits - 1 - top if differs and "shiftamt" in opcode else top) & 0xFFFFFFFF

    compare({opcode: f"{opcode} {{d}}, %a;" for opcode in opcodes}, np.uint32, {"a": a}, wanted, is_uniform=is_uniform)


@pytest.mark.parametrize("bits, is_uniform", ways([32, 64]))
def test_bits_in_the_other_order(bits, is_uniform):
    values, lines = {"a": cross(corners(bits), dtype=WIDTHS[bits])[0]}, {"brev": f"brev.b{bits} {{d}}, %a;"}
    compare(lines, WIDTHS[bits], values, lambda _, a: int(f"{a:0{bits}b}"[::-1], 2), is_uniform=is_uniform)


@pytest.mark.parametrize("is_uniform", [False, True])
def test_registers_are_joined_and_taken_apart(is_uniform):
    a, b = np.array([0x1111AAAA, 5], np.uint32), np.array([0x2222BBBB, 6], np.uint32)
    code = (
        ".reg .b16 %h, %l; mov.b64 %d, {%a, %b}; mov.b64 {%e, _}, %d; mov.b64 {_, %f}, %d;"
        "mov.b32 {%l, %h}, %a; mov.b32 %g, {%h, %l}; mov.b64 %k, {%l, %h, %h, %l};"
    )
    outputs = dict.fromkeys("dk", np.uint64) | dict.fromkeys("efg", np.uint32)
    found = evaluate(code, {"a": a, "b": b}, outputs, is_uniform=is_uniform)
    assert {name: int(row[0]) for name, row in found.items()} == {
        "d": 0x2222BBBB1111AAAA, "e": 0x1111AAAA, "f": 0x2222BBBB, "g": 0xAAAA1111, "k": 0xAAAA11111111AAAA,
    }  # fmt: skip


@pytest.mark.parametrize("bits", [32, 64])
def test_constants_are_read_in_every_spelling(bits):
    lines = {text: f"mov.{text};" for text in SPELT if f"{bits} " in text}
    compare(lines, WIDTHS[bits], {"a": np.zeros(1, np.uint32)}, lambda text, _: SPELT[text])


def test_special_registers():
    names = "tid.x tid.y tid.z ntid.x ntid.y ctaid.x ctaid.y ctaid.z nctaid.x nctaid.y laneid warpid".split()
    none = {"a": np.zeros(64, np.uint32)}
    found = each({name: f"mov.u32 {{d}}, %{name};" for name in names}, np.uint32, none)
    lanes, block = np.arange(64) % 32, np.arange(64) // 32
    wanted = {"tid.x": lanes, "laneid": lanes, "ctaid.x": block}
    wanted |= {"ntid.x": 32, "ntid.y": 1, "nctaid.x": 2, "nctaid.y": 1}
    assert all((found[name] == wanted.get(name, 0)).all() for name in names)
    grouped = evaluate("mov.b64 %d, {%tid.x, %ctaid.x};", none, {"d": np.uint64})["d"]
    assert (grouped == (block << 32 | lanes)).all()


@pytest.mark.parametrize("is_uniform", [False, True])
def test_pairs_of_short_integers_are_two_of_them(is_uniform):
    a, b = cross(corners(16), few(16), dtype=np.uint16)
    kinds = [f"{name}.{kind}" for name in ("add", "min", "max") for kind in ("s16", "u16")]
    single = each({name: f"{name} {{d}}, %a, %b;" for name in kinds}, np.uint16, {"a": a, "b": b})
    lines = {name: f"{name}x2 {{d}}, %a, %b;" for name in kinds}
    for name, found in each(lines, np.uint32, {"a": paired(a), "b": paired(b)}, is_uniform=is_uniform).items():
        assert (found == paired(single[name])).all(), name
