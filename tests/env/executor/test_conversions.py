# SPDX-License-Identifier: Apache-2.0
"""`cvt` between floats and integers against exact fractions."""

import math
from fractions import Fraction

import numpy as np
import pytest

from tests.env.executor.ptx import cross, each, evaluate
from tests.env.executor.rounding import F32, FORMATS, TF32
from tests.env.executor.test_floats import corners
from tests.env.executor.test_integers import FORMS, WIDTHS, signed
from tests.env.executor.test_integers import corners as whole_corners

WHOLE = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}


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


FLOAT_CASES = [
    ("f32", "f16", "rn"), ("f32", "f16", "rz"), ("f32", "bf16", "rn"), ("f32", "bf16", "rz"), ("f64", "f32", "rn"),
    ("f64", "f32", "rz"), ("f64", "f32", "rm"), ("f64", "f32", "rp"), ("f64", "f16", "rn"), ("f64", "bf16", "rn"),
    ("f16", "f32", ""), ("bf16", "f32", ""), ("f16", "f64", ""), ("bf16", "f64", ""), ("f32", "f64", ""),
    ("f16", "bf16", "rn"), ("bf16", "f16", "rn"),
]  # fmt: skip


@pytest.mark.parametrize("is_uniform", FORMS)
@pytest.mark.parametrize("source, target, how", FLOAT_CASES)
def test_floats_to_floats(source, target, how, is_uniform):
    form, narrow = FORMATS[source], FORMATS[target]
    values = corners(form) + (
        ties(form, narrow) if narrow.bits <= form.bits and form.mantissa > narrow.mantissa else []
    )
    values += [form.infinity + 1, form.infinity | 1 | form.sign]  # NaN with low bits only
    a = cross(values, dtype=WIDTHS[form.bits])[0]
    mark = f".{how}" if how else ""
    found = each({"d": f"cvt{mark}.{target}.{source} {{d}}, %a;"}, WIDTHS[narrow.bits], {"a": a}, is_uniform=is_uniform)
    for x, got in zip(map(int, a), map(int, found["d"]), strict=True):
        bits = converted(form, narrow, x, how or "rn")
        assert narrow.is_nan(got) if bits is None else got == bits, (hex(x), hex(got), bits)


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
    b = np.roll(a, 3)
    found = each(
        {mark: f"cvt.{how}{mark}.{kind}.f32 {{d}}, %a, %b;" for mark in ("", ".relu")}, np.uint32, {"a": a, "b": b}
    )
    for mark, row in found.items():
        for x, y, got in zip(map(int, a), map(int, b), map(int, row), strict=True):
            for value, half in ((x, got >> 16), (y, got & 0xFFFF)):
                bits = converted(F32, narrow, value, how)
                if bits is None:
                    assert narrow.is_nan(half), (mark, hex(value))
                elif mark and bits & narrow.sign:
                    assert half & ~narrow.sign == 0, (mark, hex(value))
                else:
                    assert half == bits, (mark, hex(value), hex(half))


@pytest.mark.parametrize("is_uniform", FORMS)
def test_floats_to_whole_floats_and_their_flushing(is_uniform):
    values = [
        *corners(F32),
        *(F32.rounded(Fraction(item, 4)) for item in range(-16, 17) if item),
        F32.rounded(2**24 + 2),
    ]
    a = cross(values)[0]
    lines = {f"{how}{mark}": f"cvt.{how}{mark}.f32.f32 {{d}}, %a;" for how in WHOLE for mark in ("", ".ftz")}
    for name, row in each(lines, np.uint32, {"a": a}, is_uniform=is_uniform).items():
        for x, got in zip(map(int, a), map(int, row), strict=True):
            x = F32.flushed(x) if "ftz" in name else x
            value = F32.value(x)
            if isinstance(value, float):
                assert F32.is_nan(got) if math.isnan(value) else got == x
            else:
                assert got == F32.rounded(Fraction(WHOLE[name[:3]](value)), "rn", x & F32.sign), (
                    name,
                    hex(x),
                    hex(got),
                )


def test_saturated_and_flushed_floats():
    a = cross([*corners(F32), F32.rounded(Fraction(1, 3)), F32.rounded(Fraction(-1, 3))])[0]
    lines = {"sat": "cvt.sat.f32.f32 {d}, %a;", "ftz": "cvt.ftz.f32.f32 {d}, %a;"}
    found = each(lines, np.uint32, {"a": a})
    halves = each({"d": "cvt.rn.ftz.f16.f32 {d}, %a;", "s": "cvt.rn.sat.f16.f32 {d}, %a;"}, np.uint16, {"a": a})
    for x, sat, ftz, half in zip(map(int, a), *(map(int, row) for row in (*found.values(), halves["s"])), strict=True):
        clamped = 0 if F32.is_nan(x) or x & F32.sign else min(x, F32.rounded(1))
        assert sat == clamped
        assert half == FORMATS["f16"].rounded(F32.value(clamped))
        assert F32.is_nan(ftz) if F32.is_nan(x) else ftz == F32.flushed(x)


NEAR = [(11, 0), (11, 1), (24, 0), (24, 1), (8, 0), (8, 1)]
"""Distances from a power of two, in bits, and what is added: around the middles of neighbours."""
INTEGERS = ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"]


def limits(kind):
    bits = int(kind[1:])
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if kind[0] == "s" else (0, (1 << bits) - 1)


def held(kind):
    """NumPy's type of the register that holds an integer."""
    return WIDTHS[max(16, int(kind[1:]))]


@pytest.mark.parametrize("is_uniform", FORMS)
@pytest.mark.parametrize("source", FORMATS)
@pytest.mark.parametrize("target", INTEGERS)
def test_floats_to_integers_are_clamped(source, target, is_uniform):
    form, (least, most), bits = FORMATS[source], limits(target), int(target[1:])
    edges = [Fraction(edge) + Fraction(step, 4) for edge in (least, most, 0, 2, -3) for step in range(-6, 7)]
    a = cross([*corners(form), *map(form.rounded, edges)], dtype=WIDTHS[form.bits])[0]
    marks = ["", ".ftz"] if source == "f32" else [""]
    lines = {f"{how}{mark}": f"cvt.{how}{mark}.{target}.{source} {{d}}, %a;" for how in WHOLE for mark in marks}
    mask = (1 << max(16, bits)) - 1
    for name, row in each(lines, held(target), {"a": a}, is_uniform=is_uniform).items():
        for x, got in zip(map(int, a), map(int, row), strict=True):
            value = form.value(form.flushed(x) if "ftz" in name else x)
            if isinstance(value, float) and math.isnan(value):
                wanted = 1 << bits - 1 if source == "f64" or bits == 64 else 0
                wanted = signed(wanted, bits) if target[0] == "s" else wanted
            elif isinstance(value, float):
                wanted = most if value > 0 else least
            else:
                wanted = min(max(WHOLE[name[:3]](value), least), most)
            assert got == wanted & mask, (name, hex(x), got, wanted)


@pytest.mark.parametrize("is_uniform", FORMS)
@pytest.mark.parametrize("source", INTEGERS)
def test_integers_to_floats_are_rounded_once(source, is_uniform):
    bits, register = int(source[1:]), held(source)
    near = [(1 << place) + (1 << max(0, place - far)) + more for place in range(bits) for far, more in NEAR]
    odd = [number for place in range(bits - 1) for number in (3 << place, (1 << place) - 1)]
    odd += [(sign * ((257 << place) + more)) for place in range(40, 54) for sign in (1, -1) for more in (-1, 0, 1)]
    a = cross([*whole_corners(bits), *near, *odd], dtype=register)[0]
    cases = [(kind, "rn") for kind in FORMATS]
    cases += [("f32", how) for how in ("rz", "rm", "rp") if bits < 64]
    for kind, how in cases:
        form = FORMATS[kind]
        found = each({"d": f"cvt.{how}.{kind}.{source} {{d}}, %a;"}, WIDTHS[form.bits], {"a": a}, is_uniform=is_uniform)
        for x, got in zip(map(int, a), map(int, found["d"]), strict=True):
            value = signed(x, bits) if source[0] == "s" else x & (1 << bits) - 1
            assert got == form.rounded(Fraction(value), how), (kind, how, value, hex(got))


@pytest.mark.parametrize("is_uniform", FORMS)
@pytest.mark.parametrize("source", INTEGERS)
def test_integers_to_integers(source, is_uniform):
    bits = int(source[1:])
    a = cross([*whole_corners(bits), 127, 128, 255, 256, -129], dtype=held(source))[0]
    for target in INTEGERS:
        least, most = limits(target)
        own, mask = int(target[1:]), (1 << max(16, int(target[1:]))) - 1
        lines = {mark: f"cvt{mark}.{target}.{source} {{d}}, %a;" for mark in ("", ".sat")}
        found = each(lines, held(target), {"a": a}, is_uniform=is_uniform)
        for x, plain, clamped in zip(*(map(int, row) for row in (a, found[""], found[".sat"])), strict=True):
            value = signed(x, bits) if source[0] == "s" else x & (1 << bits) - 1
            cut = signed(value, own) if target[0] == "s" else value & (1 << own) - 1
            assert (plain, clamped) == (cut & mask, min(max(value, least), most) & mask), (target, value)


@pytest.mark.parametrize("is_uniform", FORMS)
@pytest.mark.parametrize("how", ["rna", "rn", "rna.satfinite", "rn.satfinite"])
def test_tensor_floats(how, is_uniform):
    a = cross([*corners(F32), *ties(F32, TF32)])[0]
    found = each({"d": f"cvt.{how}.tf32.f32 {{d}}, %a;"}, np.uint32, {"a": a}, is_uniform=is_uniform)
    largest = (TF32.infinity - 1) << 13
    for x, got in zip(map(int, a), map(int, found["d"]), strict=True):
        bits = converted(F32, TF32, x, "rn")
        if bits is None:
            assert F32.is_nan(got)
            continue
        if "rna" in how and x & 0x1FFF == 0x1000:
            bits = (x + 0x1000) >> 13  # ties go away from zero
        bits <<= 13
        if "satfinite" in how and bits & ~F32.sign == F32.infinity:
            bits = largest | bits & F32.sign
        assert got == bits, (hex(x), hex(got), hex(bits))


def test_narrow_integers_are_extended_in_wider_registers():
    a = np.array([0x80, 0x7F, 0xFF, 0x180], np.uint16)
    found = evaluate("cvt.s32.s8 %s, %a; cvt.u32.u8 %u, %a;", {"a": a}, {"s": np.uint32, "u": np.uint32})
    assert [hex(item) for item in found["s"]] == ["0xffffff80", "0x7f", "0xffffffff", "0xffffff80"]
    assert [int(item) for item in found["u"]] == [0x80, 0x7F, 0xFF, 0x80]
