# SPDX-License-Identifier: Apache-2.0
"""`cvt` between floats, integers and floats of 8 bits, against exact fractions."""

import bisect
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from tests.env.emulator.ptx import compare, cross, each, evaluate, ways
from tests.env.emulator.rounding import EIGHT_BITS, F16, F32, FORMATS, TF32, eight
from tests.env.emulator.test_floats import corners
from tests.env.emulator.test_integers import WIDTHS, signed
from tests.env.emulator.test_integers import corners as whole_corners

WHOLE = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}
FLOAT_CASES = [
    ("f32", "f16", "rn"), ("f32", "f16", "rz"), ("f32", "bf16", "rn"), ("f32", "bf16", "rz"), ("f64", "f32", "rn"),
    ("f64", "f32", "rz"), ("f64", "f32", "rm"), ("f64", "f32", "rp"), ("f64", "f16", "rn"), ("f64", "bf16", "rn"),
    ("f16", "f32", ""), ("bf16", "f32", ""), ("f16", "f64", ""), ("bf16", "f64", ""), ("f32", "f64", ""),
    ("f16", "bf16", "rn"), ("bf16", "f16", "rn"),
]  # fmt: skip
NEAR = [(11, 0), (11, 1), (24, 0), (24, 1), (8, 0), (8, 1)]
"""Distances from a power of two, in bits, and what is added: around the middles of neighbours."""
INTEGERS = ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"]


def ties(form, narrow):
    """Floats around the places where a narrower format's numbers begin, end and lie in the middle."""
    found = []
    largest = narrow.value(narrow.infinity - 1)
    unit = narrow.value(1)
    for base in (Fraction(1), Fraction(3, 2), largest, unit, unit * 3, narrow.value(1 << narrow.mantissa)):
        step = max(unit, Fraction(2) ** (math.floor(math.log2(base)) - narrow.mantissa))
        found += [base + step * part for part in (0, Fraction(1, 2), Fraction(3, 8), Fraction(5, 8), 1, Fraction(3, 2))]
    bits = [form.rounded(item) for item in found]
    return [*bits, *(item + 1 for item in bits), *(item - 1 for item in bits), *(item | form.sign for item in bits)]


def converted(form, narrow, bits, how):
    value = form.value(bits)
    if isinstance(value, float):
        return None if math.isnan(value) else narrow.infinity | (narrow.sign if value < 0 else 0)
    return narrow.rounded(value, how, narrow.sign if bits & form.sign else 0)


@pytest.mark.parametrize("source, target, how, is_uniform", ways(FLOAT_CASES))
def test_floats_to_floats(source, target, how, is_uniform):
    form, narrow = FORMATS[source], FORMATS[target]
    values = [*corners(form), form.infinity + 1, form.infinity | 1 | form.sign]  # NaN with low bits only
    values += ties(form, narrow) if narrow.bits <= form.bits and form.mantissa > narrow.mantissa else []
    lines = {how or "rn": f"cvt{'.' if how else ''}{how}.{target}.{source} {{d}}, %a;"}
    inputs = {"a": cross(values, dtype=WIDTHS[form.bits])[0]}
    compare(
        lines, WIDTHS[narrow.bits], inputs, lambda how, bits: converted(form, narrow, bits, how),
        is_nan=narrow.is_nan, is_uniform=is_uniform,
    )  # fmt: skip


@pytest.mark.exhaustive
def test_all_halves_to_floats_and_back():
    a = np.arange(1 << 16).astype(np.uint16)
    for kind in ("f16", "bf16"):
        wide = each({"d": f"cvt.f32.{kind} {{d}}, %a;"}, np.uint32, {"a": a})["d"]
        back = each({"d": f"cvt.rn.{kind}.f32 {{d}}, %a;"}, np.uint16, {"a": wide})["d"]
        numbers = np.array([not FORMATS[kind].is_nan(int(item)) for item in a])
        assert (back[numbers] == a[numbers]).all()
        if kind == "f16":
            assert (wide.view(np.float32)[numbers] == a.view(np.float16)[numbers].astype(np.float32)).all()
        else:
            assert (wide >> 16 == a)[numbers].all()


@pytest.mark.parametrize("kind", ["f16x2", "bf16x2"])
@pytest.mark.parametrize("how", ["rn", "rz"])
def test_pairs_of_floats_to_packed_halves(kind, how):
    narrow = FORMATS[kind[:-2]]
    a = cross(corners(F32) + ties(F32, narrow))[0]
    lines = {mark: f"cvt.{how}{mark}.{kind}.f32 {{d}}, %a, %b;" for mark in ("", ".relu")}
    for mark, row in each(lines, np.uint32, {"a": a, "b": np.roll(a, 3)}).items():
        for value, got in zip([*a, *np.roll(a, 3)], map(int, [*row >> 16, *row & 0xFFFF]), strict=True):
            bits = converted(F32, narrow, int(value), how)
            if bits is None:
                assert narrow.is_nan(got), (mark, hex(value))
            elif mark and bits & narrow.sign:
                assert got & ~narrow.sign == 0, (mark, hex(value))
            else:
                assert got == bits, (mark, hex(value), hex(got))


@pytest.mark.parametrize("is_uniform", [False, True])
def test_floats_to_whole_floats_and_their_flushing(is_uniform):
    quarters = [F32.rounded(Fraction(item, 4)) for item in range(-16, 17) if item]
    a = cross([*corners(F32), *quarters, F32.rounded(2**24 + 2)])[0]
    lines = {f"{how}{mark}": f"cvt.{how}{mark}.f32.f32 {{d}}, %a;" for how in WHOLE for mark in ("", ".ftz")}

    def wanted(name, bits):
        bits = F32.flushed(bits) if "ftz" in name else bits
        if bits & F32.infinity == F32.infinity:
            return None if F32.is_nan(bits) else bits
        return F32.rounded(Fraction(WHOLE[name[:3]](F32.value(bits))), "rn", bits & F32.sign)

    compare(lines, np.uint32, {"a": a}, wanted, is_nan=F32.is_nan, is_uniform=is_uniform)


def clamped(bits):
    return 0 if F32.is_nan(bits) or bits & F32.sign else min(bits, F32.rounded(1))


@pytest.mark.parametrize("opcode, form, wanted", [
    ("cvt.sat.f32.f32", F32, clamped),
    ("cvt.ftz.f32.f32", F32, lambda bits: None if F32.is_nan(bits) else F32.flushed(bits)),
    ("cvt.rn.sat.f16.f32", F16, lambda bits: F16.rounded(F32.value(clamped(bits)))),
    ("cvt.rn.ftz.f16.f32", F16, lambda bits: converted(F32, F16, F32.flushed(bits), "rn")),
])  # fmt: skip
def test_saturated_and_flushed_floats(opcode, form, wanted):
    a = cross([*corners(F32), F32.rounded(Fraction(1, 3)), F32.rounded(Fraction(-1, 3))])[0]
    lines = {opcode: f"{opcode} {{d}}, %a;"}
    compare(lines, WIDTHS[form.bits], {"a": a}, lambda _, bits: wanted(bits), is_nan=form.is_nan)


def limits(kind):
    bits = int(kind[1:])
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if kind[0] == "s" else (0, (1 << bits) - 1)


def held(kind):
    return WIDTHS[max(16, int(kind[1:]))]


def whole(kind, bits):
    """The integer that a register holds, its upper bits cut off."""
    size = int(kind[1:])
    return signed(bits, size) if kind[0] == "s" else bits & (1 << size) - 1


def register(kind, value):
    return value & (1 << max(16, int(kind[1:]))) - 1


@pytest.mark.slow
@pytest.mark.parametrize("source, target, is_uniform", ways(itertools.product(FORMATS, INTEGERS)))
def test_floats_to_integers_are_clamped(source, target, is_uniform):
    form, (least, most), size = FORMATS[source], limits(target), int(target[1:])
    edges = [Fraction(edge) + Fraction(step, 4) for edge in (least, most, 0, 2, -3) for step in range(-6, 7)]
    a = cross([*corners(form), *map(form.rounded, edges)], dtype=WIDTHS[form.bits])[0]
    marks = ["", ".ftz"] if source == "f32" else [""]
    lines = {f"{how}{mark}": f"cvt.{how}{mark}.{target}.{source} {{d}}, %a;" for how in WHOLE for mark in marks}
    of_nan = whole(target, 1 << size - 1) if source == "f64" or size == 64 else 0

    def wanted(name, bits):
        value = form.value(form.flushed(bits) if "ftz" in name else bits)
        if form.is_nan(bits):
            return register(target, of_nan)
        if isinstance(value, float):
            return register(target, most if value > 0 else least)
        return register(target, min(max(WHOLE[name[:3]](value), least), most))

    compare(lines, held(target), {"a": a}, wanted, is_uniform=is_uniform)


@pytest.mark.parametrize("source, is_uniform", ways(INTEGERS))
def test_integers_to_floats_are_rounded_once(source, is_uniform):
    bits = int(source[1:])
    near = [(1 << place) + (1 << max(0, place - far)) + more for place in range(bits) for far, more in NEAR]
    odd = [number for place in range(bits - 1) for number in (3 << place, (1 << place) - 1)]
    odd += [(sign * ((257 << place) + more)) for place in range(40, 54) for sign in (1, -1) for more in (-1, 0, 1)]
    a = cross([*whole_corners(bits), *near, *odd], dtype=held(source))[0]
    cases = [*((kind, "rn") for kind in FORMATS), *itertools.product(("f32", "f64"), ("rz", "rm", "rp"))]
    for kind, how in cases:

        def wanted(_, value, form=FORMATS[kind], how=how):
            return form.rounded(Fraction(whole(source, value)), how)

        lines = {f"{kind} {how}": f"cvt.{how}.{kind}.{source} {{d}}, %a;"}
        compare(lines, WIDTHS[FORMATS[kind].bits], {"a": a}, wanted, is_uniform=is_uniform)


@pytest.mark.parametrize("source, is_uniform", ways(INTEGERS))
def test_integers_to_integers(source, is_uniform):
    a = cross([*whole_corners(int(source[1:])), 127, 128, 255, 256, -129], dtype=held(source))[0]
    for target in INTEGERS:

        def wanted(mark, bits, target=target):
            value, (least, most) = whole(source, bits), limits(target)
            return register(target, min(max(value, least), most) if mark else whole(target, value))

        lines = {mark: f"cvt{mark}.{target}.{source} {{d}}, %a;" for mark in ("", ".sat")}
        compare(lines, held(target), {"a": a}, wanted, is_uniform=is_uniform)


@pytest.mark.parametrize("how, is_uniform", ways(["rna", "rn", "rna.satfinite", "rn.satfinite"]))
def test_tensor_floats(how, is_uniform):
    a = cross([*corners(F32), *ties(F32, TF32)])[0]

    def wanted(name, x):
        bits = converted(F32, TF32, x, "rn")
        if bits is not None and "rna" in how and x & 0x1FFF == 0x1000:
            bits = (x + 0x1000) >> 13  # ties go away from zero
        if bits is not None and "satfinite" in how and bits & ~TF32.sign == TF32.infinity:
            bits = TF32.infinity - 1 | bits & TF32.sign
        return bits if bits is None else bits << 13

    lines = {how: f"cvt.{how}.tf32.f32 {{d}}, %a;"}
    compare(lines, np.uint32, {"a": a}, wanted, is_nan=F32.is_nan, is_uniform=is_uniform)


@pytest.mark.parametrize("kind", EIGHT_BITS)
def test_bytes_to_halves(kind):
    low = np.arange(256).astype(np.uint16)
    found = evaluate(f"cvt.rn.f16x2.{kind}x2 %d, %a;", {"a": low | (255 - low) << 8}, {"d": np.uint32})["d"]
    for byte, half in zip([*range(256), *range(255, -1, -1)], map(int, [*found & 0xFFFF, *found >> 16]), strict=True):
        number = eight(kind, byte)
        is_right = F16.is_nan(half) if number is None else (F16.value(half), half >> 15) == (number, byte >> 7)
        assert is_right, hex(byte)


def nearest(kind, number, sign):
    """The byte of the nearest number, of two the one with an even mantissa, at most the largest."""
    above = bisect.bisect(range(EIGHT_BITS[kind]), abs(number), key=lambda size: eight(kind, size))
    neighbours = range(max(0, above - 1), above + 1)
    return min(neighbours, key=lambda size: (abs(eight(kind, size) - abs(number)), size & 1)) | sign


def of_eight_bits(kind, form, bits):
    """The byte of a float, by rounding and clamping."""
    sign, value = bits >> form.bits - 8 & 0x80, form.value(bits)
    if isinstance(value, float):
        return 0x7F if math.isnan(value) else EIGHT_BITS[kind] | sign
    return nearest(kind, value, sign)


@pytest.mark.parametrize("kind", EIGHT_BITS)
def test_floats_to_bytes_are_rounded_and_clamped(kind):
    numbers = [eight(kind, byte) for byte in range(EIGHT_BITS[kind] + 1)]
    middles = [(low + high) / 2 for low, high in itertools.pairwise(numbers)]
    bits = [F32.rounded(item) for item in (*numbers, *middles, numbers[-1] * Fraction(17, 16), Fraction(10) ** 9)]
    bits = [near for item in bits for near in (item, item + 1, max(item, 1) - 1)]
    bits += [*(item | F32.sign for item in bits), F32.infinity, F32.infinity | F32.sign, 0x7FC00000, 0x7F800001]
    a = np.array(bits, np.uint32)
    found = evaluate(f"cvt.rn.satfinite.{kind}x2.f32 %d, %a, %b;", {"a": a, "b": a[::-1].copy()}, {"d": np.uint16})["d"]
    wanted = [of_eight_bits(kind, F32, item) for item in bits]
    assert [int(item) >> 8 & 0xFF for item in found] == wanted
    assert [int(item) & 0xFF for item in found] == wanted[::-1]


@pytest.mark.parametrize("kind", EIGHT_BITS)
def test_halves_to_bytes(kind):
    halves = np.arange(0, 1 << 16, 31).astype(np.uint32)
    inputs = {"a": halves << 16 | halves[::-1]}
    found = evaluate(f"cvt.rn.satfinite.{kind}x2.f16x2 %d, %a;", inputs, {"d": np.uint16})["d"]
    is_nan = np.array([F16.is_nan(int(half)) for half in halves])
    wanted = np.array([of_eight_bits(kind, F16, int(half)) for half in halves])
    assert (found >> 8 == wanted)[~is_nan].all()
    assert (found >> 8 & 0x7F == 0x7F)[is_nan].all()
    assert (found[::-1] >> 8 == (found & 0xFF)).all()
