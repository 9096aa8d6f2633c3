# SPDX-License-Identifier: Apache-2.0
"""Shifts, fields, bytes and counts of bits."""

import numpy as np
import pytest

from tests.env.executor.ptx import cross, each, evaluate
from tests.env.executor.test_integers import FORMS, WIDTHS, corners, signed

AMOUNTS = [0, 1, 7, 15, 16, 17, 31, 32, 33, 63, 64, 65, 0x80000000, 0xFFFFFFFF]


def shifted(name, value, amount, bits):
    """PTX: amounts beyond the width are the width."""
    amount = min(amount, bits)
    if name == "shl":
        return value << amount & (1 << bits) - 1
    return (signed(value, bits) if name == "sar" else value) >> amount & (1 << bits) - 1


@pytest.mark.parametrize("is_uniform", FORMS)
@pytest.mark.parametrize("bits", WIDTHS)
def test_shifts_beyond_the_width(bits, is_uniform):
    a = cross(corners(bits), AMOUNTS, dtype=WIDTHS[bits])[0]
    b = cross(corners(bits), AMOUNTS)[1]
    lines = {
        "shl": f"shl.b{bits} {{d}}, %a, %b;",
        "shr": f"shr.u{bits} {{d}}, %a, %b;",
        "sar": f"shr.s{bits} {{d}}, %a, %b;",
    }
    found = each(lines, WIDTHS[bits], {"a": a, "b": b}, is_uniform=is_uniform)
    for name, row in found.items():
        assert [int(item) for item in row] == [shifted(name, int(x), int(y), bits) for x, y in zip(a, b, strict=True)]


@pytest.mark.parametrize("bits", WIDTHS)
def test_shifts_by_constants(bits):
    a = cross(corners(bits), dtype=WIDTHS[bits])[0]
    kinds = {"shl": f"shl.b{bits}", "shr": f"shr.b{bits}", "sar": f"shr.s{bits}"}
    lines = {
        f"{name} {far}": f"{kinds[name]} {{d}}, %a, {far};" for name in kinds for far in (0, 1, 15, 16, 31, 32, 33, 64)
    }
    for key, row in each(lines, WIDTHS[bits], {"a": a}).items():
        name, far = key.split()
        assert [int(item) for item in row] == [shifted(name, int(x), int(far), bits) for x in a], key


@pytest.mark.parametrize("is_uniform", FORMS)
def test_funnel_shifts(is_uniform):
    low, high, amount = cross([0x12345678, 0x89ABCDEF, 0], [0xDEADBEEF, 1], [0, 1, 16, 31, 32, 33, 63, 0xFFFFFFFF])
    lines = {f"{way} {how}": f"shf.{way}.{how}.b32 {{d}}, %a, %b, %c;" for way in "lr" for how in ("wrap", "clamp")}
    found = each(lines, np.uint32, {"a": low, "b": high, "c": amount}, is_uniform=is_uniform)
    for a, b, c, *got in zip(low, high, amount, *found.values(), strict=True):
        both, c = int(b) << 32 | int(a), int(c)
        wrapped, clamped = c & 31, min(c, 32)
        wanted = [both << n >> 32 & 0xFFFFFFFF for n in (wrapped, clamped)]
        assert [int(item) for item in got] == [*wanted, *(both >> n & 0xFFFFFFFF for n in (wrapped, clamped))]


@pytest.mark.parametrize("is_uniform", FORMS)
@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_fields_taken_out(kind, is_uniform):
    bits = int(kind[1:])
    a = cross(corners(bits), dtype=WIDTHS[bits])[0]
    fields = [(0, 1), (3, 4), (23, 1), (0, bits), (bits - 1, 1), (bits - 4, 8), (5, 255), (16, 16)]
    lines = {f"{place} {length}": f"bfe.{kind} {{d}}, %a, {place}, {length};" for place, length in fields}
    for key, row in each(lines, WIDTHS[bits], {"a": a}, is_uniform=is_uniform).items():
        place, length = map(int, key.split())
        length = min(length, bits - place)
        wanted = [int(x) >> place & (1 << length) - 1 for x in a]
        wanted = [signed(x, length) & (1 << bits) - 1 for x in wanted] if kind[0] == "s" else wanted
        assert [int(item) for item in row] == wanted, key


@pytest.mark.parametrize("is_uniform", FORMS)
@pytest.mark.parametrize("bits", [32, 64])
def test_fields_put_in(bits, is_uniform):
    a, b = cross(corners(bits), corners(bits), dtype=WIDTHS[bits])
    fields = [(0, 1), (3, 4), (0, bits), (bits - 1, 1), (bits - 4, 8), (7, 0), (bits, 4), (bits + 8, 1), (5, 255)]
    lines = {f"{place} {length}": f"bfi.b{bits} {{d}}, %a, %b, {place}, {length};" for place, length in fields}
    for key, row in each(lines, WIDTHS[bits], {"a": a, "b": b}, is_uniform=is_uniform).items():
        place, length = map(int, key.split())
        mask = ((1 << length) - 1 << place) & (1 << bits) - 1
        wanted = [int(x) << place & mask | int(y) & ~mask for x, y in zip(a, b, strict=True)]
        assert [int(item) for item in row] == wanted, key


@pytest.mark.parametrize("is_uniform", FORMS)
def test_bytes_are_permuted(is_uniform):
    a, b, c = cross(
        [0x83828180, 0x03020100], [0x87868584, 0x77665544], [0x3210, 0x7654, 0xFEDC, 0xBA98, 0x0, 0x8F07, 0xFFFF1234]
    )
    lines = {"reg": "prmt.b32 {d}, %a, %b, %c;", "const": "prmt.b32 {d}, %a, %b, 0x7B40U;"}
    found = each(lines, np.uint32, {"a": a, "b": b, "c": c}, is_uniform=is_uniform)

    def permuted(x, y, selector):
        data, value = int(x).to_bytes(4, "little") + int(y).to_bytes(4, "little"), 0
        for place in range(4):
            nibble = int(selector) >> 4 * place & 15
            byte = data[nibble & 7]
            value |= ((0xFF if byte & 0x80 else 0) if nibble & 8 else byte) << 8 * place
        return value

    rows = list(zip(a, b, c, strict=True))
    assert [*found["reg"]] == [permuted(*row) for row in rows]
    assert [*found["const"]] == [permuted(x, y, 0x7B40) for x, y, _ in rows]
    assert permuted(0x83828180, 0x87868584, 0xBA98) == 0xFFFFFFFF  # each byte's sign is set


@pytest.mark.parametrize("is_uniform", FORMS)
def test_all_functions_of_three_bits(is_uniform):
    inputs = {name: np.array([value], np.uint32) for name, value in (("a", 0xF0), ("b", 0xCC), ("c", 0xAA))}
    lines = {
        str(table): f"lop3.b32 {{d}}, %a, %b, %c, {table};" for table in range(0, 256, 1 if not is_uniform else 17)
    }
    found = each(lines, np.uint32, inputs, is_uniform=is_uniform)
    assert all(int(row[0]) & 0xFF == int(table) for table, row in found.items())
    assert all(int(row[0]) >> 8 == (0xFFFFFF if int(table) & 1 else 0) for table, row in found.items())


@pytest.mark.parametrize("is_uniform", FORMS)
@pytest.mark.parametrize("bits", [32, 64])
def test_counts_of_bits(bits, is_uniform):
    a = cross([*corners(bits), *(1 << place for place in range(bits))], dtype=WIDTHS[bits])[0]
    kinds = {"clz": f"clz.b{bits}", "popc": f"popc.b{bits}", "u": f"bfind.u{bits}", "s": f"bfind.s{bits}"}
    kinds |= {"us": f"bfind.shiftamt.u{bits}", "ss": f"bfind.shiftamt.s{bits}"}
    found = each(
        {name: f"{opcode} {{d}}, %a;" for name, opcode in kinds.items()}, np.uint32, {"a": a}, is_uniform=is_uniform
    )
    for place, value in enumerate(map(int, a)):
        differs = ~value & (1 << bits) - 1 if value >> bits - 1 else value
        wanted = {"clz": bits - value.bit_length(), "popc": value.bit_count()}
        for name, item in (("u", value), ("s", differs)):
            top = item.bit_length() - 1
            wanted |= {name: top & 0xFFFFFFFF, f"{name}s": bits - 1 - top if item else 0xFFFFFFFF}
        assert {name: int(row[place]) for name, row in found.items()} == wanted, hex(value)


@pytest.mark.parametrize("is_uniform", FORMS)
@pytest.mark.parametrize("bits", [32, 64])
def test_bits_in_the_other_order(bits, is_uniform):
    a = cross(corners(bits), dtype=WIDTHS[bits])[0]
    found = each({"brev": f"brev.b{bits} {{d}}, %a;"}, WIDTHS[bits], {"a": a}, is_uniform=is_uniform)
    assert [int(x) for x in found["brev"]] == [int(f"{int(x):0{bits}b}"[::-1], 2) for x in a]


@pytest.mark.parametrize("is_uniform", FORMS)
def test_registers_are_joined_and_taken_apart(is_uniform):
    a, b = np.array([0x1111AAAA, 5], np.uint32), np.array([0x2222BBBB, 6], np.uint32)
    code = (
        ".reg .b16 %h, %l; mov.b64 %d, {%a, %b}; mov.b64 {%e, _}, %d; mov.b64 {_, %f}, %d;"
        "mov.b32 {%l, %h}, %a; mov.b32 %g, {%h, %l}; mov.b64 %k, {%l, %h, %h, %l};"
    )
    outputs = {"d": np.uint64, "e": np.uint32, "f": np.uint32, "g": np.uint32, "k": np.uint64}
    found = evaluate(code, {"a": a, "b": b}, outputs, is_uniform=is_uniform)
    assert [hex(row[0]) for row in found.values()] == [
        "0x2222bbbb1111aaaa", "0x1111aaaa", "0x2222bbbb", "0xaaaa1111", "0xaaaa11111111aaaa",
    ]  # fmt: skip


def test_constants_are_read_in_every_spelling():
    spelt = ["-1", "0x10", "0xFFFFFFFFU", "0f3F800000", "12U", "0", "-0x10", "017"]
    lines = {text: f"mov.b32 {{d}}, {text};" for text in spelt}
    found = each(lines, np.uint32, {"a": np.zeros(1, np.uint32)})
    assert [int(found[text][0]) for text in spelt] == [
        0xFFFFFFFF, 16, 0xFFFFFFFF, 0x3F800000, 12, 0, 0xFFFFFFF0, 15,
    ]  # fmt: skip
    wide = each(
        {"d": "mov.b64 {d}, 0d4009000000000000;", "f": "mov.f64 {d}, 0f3F800000;"},
        np.uint64,
        {"a": np.zeros(1, np.uint32)},
    )
    assert [int(row[0]) for row in wide.values()] == [0x4009000000000000, 0x3FF0000000000000]


def test_special_registers():
    names = "tid.x tid.y tid.z ntid.x ntid.y ctaid.x ctaid.y ctaid.z nctaid.x nctaid.y laneid warpid".split()
    found = each({name: f"mov.u32 {{d}}, %{name};" for name in names}, np.uint32, {"a": np.zeros(64, np.uint32)})
    lanes, block = np.arange(64) % 32, np.arange(64) // 32
    wanted = {
        "tid.x": lanes,
        "laneid": lanes,
        "ctaid.x": block,
        "ntid.x": 32,
        "ntid.y": 1,
        "nctaid.x": 2,
        "nctaid.y": 1,
    }
    assert all((found[name] == wanted.get(name, 0)).all() for name in names)


def test_a_special_register_in_a_group_differs_by_lane():
    code = ".reg .b32 %t; mov.b64 %d, {%tid.x, %ctaid.x};"
    found = evaluate(code, {"a": np.zeros(64, np.uint32)}, {"d": np.uint64})
    assert [*found["d"]] == [place // 32 << 32 | place % 32 for place in range(64)]
