# SPDX-License-Identifier: Apache-2.0
"""Arithmetic, extremes, signs, comparisons, classes and clamping of floats, against exact fractions."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.env.emulator.ptx import compare, cross, each, evaluate, paired, ways
from tests.env.emulator.rounding import BF16, F32, FORMATS, calculated
from tests.env.emulator.test_flow import graph
from tests.env.emulator.test_integers import RELATIONS, WIDTHS
from tests.tiers import thinned
from verl_kernel.env.emulator.flow.graph import normal

DIRECTIONS = ("rn", "rz", "rm", "rp")
FLUSHED = ("f32", "f16")


def corners(form):
    """Zeros, subnormals, ones, neighbours, ties, the largest numbers, infinities and NaN, with both signs."""
    one = form.bias << form.mantissa
    sizes = [
        0, 1, (1 << form.mantissa) - 1, 1 << form.mantissa, one - 1, one, one + 1, one + (1 << form.mantissa - 1) + 1,
        one + (form.mantissa + 1 << form.mantissa), one - (form.mantissa + 1 << form.mantissa) + 1, form.infinity - 1,
        form.infinity, form.infinity + (1 << form.mantissa - 1),
    ]  # fmt: skip
    return [*sizes, *(size | form.sign for size in sizes)]


def pairs(form):
    return dict(zip("ab", cross(corners(form), corners(form), dtype=WIDTHS[form.bits]), strict=True))


def marks(kind, *more):
    return ("", *more, ".ftz") if kind in FLUSHED else ("", *more)


def opcodes(kind):
    """Of add, sub, mul, fma and div, with every rounding and flushing of a type: what each of them calculates."""
    found = {}
    for name in ("add", "sub", "mul", "fma"):
        for how in DIRECTIONS if kind in ("f32", "f64") else ("rn",):
            for flushing in marks(kind):
                found[f"{name}.{how}{flushing}.{kind}"] = (name, how, bool(flushing))
    found |= {f"{name}.{kind}": (name, "rn", False) for name in ("add", "sub", "mul")}
    if kind in ("f32", "f64"):
        found |= {f"div.{how}.{kind}": ("div", how, False) for how in DIRECTIONS}
    if kind == "f32":
        found |= {f"div.{how}.ftz.f32": ("div", how, True) for how in DIRECTIONS}
        found["div.full.ftz.f32"] = ("div", "rn", True)
    return found


def check(cases, form, columns, is_uniform=False):
    """Cases: for each opcode, which calculation, direction and flushing it stands for."""
    lines = {opcode: f"{opcode} {{d}}, {operands(opcode)};" for opcode in cases}

    def wanted(opcode, *row):
        name, how, is_flushed = cases[opcode]
        row = row[: 3 if name == "fma" else 2]
        bits = calculated(name, form, [form.flushed(item) for item in row] if is_flushed else [*row], how)
        return form.flushed(bits) if is_flushed and bits is not None else bits

    inputs = dict(zip("abc", columns, strict=False))
    compare(lines, WIDTHS[form.bits], inputs, wanted, is_nan=form.is_nan, is_uniform=is_uniform)


def operands(opcode):
    return "%a, %b, %c" if opcode.startswith("fma") else "%a, %b"


@pytest.mark.slow
@pytest.mark.parametrize("kind", FORMATS)
def test_results_are_rounded_in_every_direction(kind):
    form, cases = FORMATS[kind], {opcode: case for opcode, case in opcodes(kind).items() if case[0] != "fma"}
    check(cases, form, [*pairs(form).values()])


@pytest.mark.parametrize("kind", thinned(FORMATS, 4))
def test_fused_products_are_rounded_once(kind):
    form, cases = FORMATS[kind], {opcode: case for opcode, case in opcodes(kind).items() if case[0] == "fma"}
    few = [*corners(form)[::2], form.sign]
    check(cases, form, cross(few, few, corners(form), dtype=WIDTHS[form.bits]))


@pytest.mark.parametrize("kind", thinned(FORMATS, 4))
def test_uniform_values_are_rounded_as_those_of_lanes(kind):
    form = FORMATS[kind]
    few = corners(form)[1::3]
    check(opcodes(kind), form, cross(few, few, few[:3], dtype=WIDTHS[form.bits]), is_uniform=True)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.sampled_from(list(FORMATS)), st.data())
def test_any_values(kind, data):
    form = FORMATS[kind]
    first, sign = form.bias - 2 << form.mantissa, st.sampled_from([0, form.sign])
    near = st.builds(lambda size, sign: size | sign, st.integers(first, first + (4 << form.mantissa)), sign)
    number = st.integers(0, (1 << form.bits) - 1) | near
    rows = data.draw(st.lists(st.tuples(number, number, number), min_size=32, max_size=32))
    check(opcodes(kind), form, [np.array(column, WIDTHS[form.bits]) for column in zip(*rows, strict=True)])


def test_a_fused_product_of_brain_floats_is_rounded_once():
    """7 x 37 = 259 lies between 258 and 260: what is added decides, however small it is."""
    a, b, tiny = BF16.rounded(7), BF16.rounded(37), 1
    rows = [(a, b, tiny), (a, b, tiny | 0x8000), (a | 0x8000, b, tiny), (a, b, 0)]
    columns = [np.array(column, np.uint16) for column in zip(*rows, strict=True)]
    check({"fma.rn.bf16": ("fma", "rn", False)}, BF16, columns)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_packed_halves_are_two_of_them(kind):
    form = FORMATS[kind]
    a, b = pairs(form).values()
    c = np.roll(a, 5)
    names = ["add", "sub", "mul", "fma.rn", "min", "max", "min.NaN", "max.NaN"]
    names += ["add.ftz", "mul.ftz", "fma.rn.ftz"] if kind == "f16" else []
    lines, wide = ({name: f"{name}.{kind}{pair} {{d}}, {operands(name)};" for name in names} for pair in ("", "x2"))
    single = each(lines, np.uint16, {"a": a, "b": b, "c": c})
    for name, packed in each(wide, np.uint32, {"a": paired(a), "b": paired(b), "c": paired(c)}).items():
        assert (packed == paired(single[name])).all(), name


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_packed_halves_are_compared_one_by_one(kind):
    form = FORMATS[kind]
    a, b = pairs(form).values()
    names = [f"{name}{mark}" for name in RELATIONS for mark in marks(kind)]
    single = each({name: f"setp.{name}.{kind} {{d}}, %a, %b;" for name in names}, bool, {"a": a, "b": b})
    inputs = {"a": paired(a), "b": paired(b)}
    for name, wanted in single.items():
        found = evaluate(f"setp.{name}.{kind}x2 %d|%e, %a, %b;", inputs, {"d": bool, "e": bool})
        assert (found["d"] == wanted).all(), name
        assert (found["e"] == np.roll(wanted, 1)).all(), name


def test_a_comparison_as_a_number():
    a, b = pairs(F32).values()
    holds = each({"p": "setp.lt.f32 {d}, %a, %b;"}, bool, {"a": a, "b": b})["p"]
    lines = {kind: f"set.lt.{kind}.f32 {{d}}, %a, %b;" for kind in ("u32", "s32", "f32")}
    found = each(lines, np.uint32, {"a": a, "b": b})
    for kind, yes in (("u32", 0xFFFFFFFF), ("s32", 0xFFFFFFFF), ("f32", 0x3F800000)):
        assert (found[kind] == np.where(holds, yes, 0)).all(), kind


def ordered(form, bits):
    """A key that orders numbers, -0 below +0."""
    return -(bits & form.sign - 1) - 1 if bits & form.sign else bits


@pytest.mark.parametrize("kind, is_uniform", ways(FORMATS))
def test_extremes_leave_out_nan_and_order_zeros(kind, is_uniform):
    form = FORMATS[kind]
    all_marks = [""] if kind == "f64" else [*marks(kind, ".NaN"), *([".ftz.NaN"] if kind in FLUSHED else [])]
    lines = {f"{root}{mark}": f"{root}{mark}.{kind} {{d}}, %a, %b;" for root in ("min", "max") for mark in all_marks}

    def wanted(name, *pair):
        numbers = [form.flushed(item) if "ftz" in name else item for item in pair if not form.is_nan(item)]
        if len(numbers) < 2 and ("NaN" in name or not numbers):
            return None
        return (min if name.startswith("min") else max)(numbers, key=lambda item: ordered(form, item))

    compare(lines, WIDTHS[form.bits], pairs(form), wanted, is_nan=form.is_nan, is_uniform=is_uniform)


@pytest.mark.parametrize("kind, is_uniform", ways([kind for kind in FORMATS if kind != "f64"]))
def test_extremes_of_magnitudes_have_the_sign_of_the_product(kind, is_uniform):
    form = FORMATS[kind]
    names = ["min", "max", "min.NaN", "max.NaN"]
    lines = {name: f"{name}.xorsign.abs.{kind} {{d}}, %a, %b;" for name in names}

    def wanted(name, x, y):
        sizes = [item & ~form.sign for item in (x, y) if not form.is_nan(item)]
        if len(sizes) < 2 and ("NaN" in name or not sizes):
            return None
        return (min if name.startswith("min") else max)(sizes) | (x ^ y) & form.sign

    compare(lines, WIDTHS[form.bits], pairs(form), wanted, is_nan=form.is_nan, is_uniform=is_uniform)


@pytest.mark.parametrize("kind, is_uniform", ways(FORMATS))
def test_signs(kind, is_uniform):
    form = FORMATS[kind]
    a = cross([item for item in corners(form) if not form.is_nan(item)], dtype=WIDTHS[form.bits])[0]
    lines = {f"{root}{mark}": f"{root}{mark}.{kind} {{d}}, %a;" for root in ("neg", "abs") for mark in marks(kind)}

    def wanted(name, bits):
        bits = form.flushed(bits) if "ftz" in name else bits
        return bits ^ form.sign if "neg" in name else bits & ~form.sign

    compare(lines, WIDTHS[form.bits], {"a": a}, wanted, is_uniform=is_uniform)


@pytest.mark.parametrize("kind, is_uniform", ways(["f32", "f64"]))
def test_a_sign_is_copied_from_the_first_operand(kind, is_uniform):
    form, lines = FORMATS[kind], {"copysign": f"copysign.{kind} {{d}}, %a, %b;"}
    sign, size = form.sign, form.sign - 1
    compare(lines, WIDTHS[form.bits], pairs(form), lambda _, x, y: x & sign | y & size, is_uniform=is_uniform)


@pytest.mark.parametrize("kind, is_uniform", ways(FORMATS))
def test_comparisons(kind, is_uniform):
    form = FORMATS[kind]
    names = [*RELATIONS, *(f"{name}u" for name in RELATIONS), "num", "nan"]
    lines = {f"{name}{mark}": f"setp.{name}{mark}.{kind} {{d}}, %a, %b;" for name in names for mark in marks(kind)}

    def wanted(name, *pair):
        relation, has_nan = name.partition(".")[0], any(map(form.is_nan, pair))
        if relation in ("num", "nan"):
            return has_nan == (relation == "nan")
        values = [form.value(form.flushed(item) if "ftz" in name else item) for item in pair]
        return relation.endswith("u") if has_nan else RELATIONS[relation[:2]](*values)

    compare(lines, bool, pairs(form), wanted, is_uniform=is_uniform)


@pytest.mark.parametrize("kind, is_uniform", ways(["f32", "f64"]))
def test_classes(kind, is_uniform):
    form = FORMATS[kind]
    least, infinity = 1 << form.mantissa, form.infinity
    classes = {
        "finite": lambda size: size < infinity, "infinite": lambda size: size == infinity,
        "number": lambda size: size <= infinity, "notanumber": lambda size: size > infinity,
        "normal": lambda size: not size or least <= size < infinity,  # zeros are, says the PTX ISA
        "subnormal": lambda size: 0 < size < least,
    }  # fmt: skip
    lines = {name: f"testp.{name}.{kind} {{d}}, %a;" for name in classes}
    a = cross(corners(form), dtype=WIDTHS[form.bits])[0]
    compare(lines, bool, {"a": a}, lambda name, bits: classes[name](bits & form.sign - 1), is_uniform=is_uniform)


@pytest.mark.parametrize("is_uniform", [False, True])
def test_saturated_results(is_uniform):
    one, roots = F32.rounded(1), ("add", "sub", "mul")
    a, b = cross([*corners(F32), F32.rounded(0.5)], [*corners(F32)[::3], F32.rounded(0.25)])
    lines = {f"{name}{mark}": f"{name}.rn{mark}.sat.f32 {{d}}, %a, %b;" for name in roots for mark in ("", ".ftz")}

    def wanted(name, x, y):
        flush = F32.flushed if "ftz" in name else int
        bits = calculated(name[:3], F32, [flush(x), flush(y)])
        return 0 if bits is None or bits & F32.sign else flush(min(bits, one))

    compare(lines, np.uint32, {"a": a, "b": b}, wanted, is_uniform=is_uniform)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_relu_keeps_nan_and_takes_negative_results_for_zero(kind):
    form = FORMATS[kind]
    a, b = cross(corners(form), corners(form)[::3], dtype=np.uint16)
    inputs = {"a": a, "b": b, "c": np.full_like(a, form.sign)}
    found = each({"one": f"fma.rn.relu.{kind} {{d}}, %a, %b, %c;"}, np.uint16, inputs)["one"]
    for x, y, got in zip(map(int, a), map(int, b), map(int, found), strict=True):
        bits = calculated("fma", form, [x, y, form.sign])
        is_right = form.is_nan(got) if bits is None else got & ~form.sign == (0 if bits & form.sign else bits)
        assert is_right, (hex(x), hex(y), hex(got))


NORMAL = [
    "add.ftz.f32 %r1, %r8, %r8;",
    "fma.rn.ftz.f32 %r1, %r8, %r8, %r8;",
    "mov.b32 %r1, 0f3F800000;",
    "mov.b32 %r1, 0f80000000;",
    "add.ftz.f32 %r2, %r8, %r8; mov.b32 %r1, %r2;",
    "add.ftz.f32 %r2, %r8, %r8; selp.f32 %r1, %r2, 0f3F800000, %p1;",
    "cvt.rn.f32.s32 %r1, %r8;",
    "mov.b32 %r1, 0f3F800000; @%p1 add.ftz.f32 %r1, %r8, %r8;",
]
SUBNORMAL = [
    "add.f32 %r1, %r8, %r8;",
    "mov.b32 %r1, 0f00400000;",
    "mov.b32 %r1, %r8;",
    "mov.b32 %r1, 1;",
    "add.ftz.f32 %r2, %r8, %r8; selp.f32 %r1, %r2, %r8, %p1;",
    "add.ftz.f32 %r1, %r8, %r8; add.s32 %r1, %r1, 1;",
    "ld.global.b32 %r1, [%rd1];",
]


@pytest.mark.parametrize("line", [*NORMAL, *SUBNORMAL])
def test_registers_without_subnormals_are_known(line):
    assert ("%r1" in normal(graph("mov.u32 %r8, %tid.x;\n" + line))) == (line in NORMAL)


def test_a_register_that_something_else_writes_is_flushed():
    tiny = np.array([1, 0x00400000, 0x80000001, 0x3F800000], np.uint32)
    code = (
        ".reg .b32 %x, %y; add.ftz.f32 %x, %a, %a; mov.b32 %x, %a; add.ftz.f32 %d, %x, 0f80000000;"
        "mov.b32 %y, 0f00400000; mul.ftz.f32 %e, %y, 0f40000000; neg.ftz.f32 %f, %a;"
    )
    found = evaluate(code, {"a": tiny}, dict.fromkeys("def", np.uint32))
    assert found["d"].tolist() == [0, 0, 0x80000000, 0x3F800000]
    assert found["e"].tolist() == [0] * 4
    assert found["f"].tolist() == [0x80000000, 0x80000000, 0, 0xBF800000]


def root(form, bits, how):
    """Bits of a square root; None for NaN."""
    value = form.value(bits)
    if not value or value == math.inf:
        return bits
    if isinstance(value, float) or value < 0:
        return None
    scale = 1 << 700
    whole = math.isqrt(value.numerator * scale * scale // value.denominator)
    is_exact = whole * whole * value.denominator == value.numerator * scale * scale
    return form.rounded(Fraction(2 * whole + (not is_exact), 2 * scale), how)


@pytest.mark.parametrize("is_uniform", [False, True])
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_roots_and_reciprocals_are_rounded_in_every_direction(kind, is_uniform):
    form = FORMATS[kind]
    cases = {f"{name}.{how}.{kind}": (name, how) for name in ("sqrt", "rcp") for how in DIRECTIONS}
    lines = {opcode: f"{opcode} {{d}}, %a;" for opcode in cases}
    one = form.bias << form.mantissa

    def wanted(opcode, bits):
        name, how = cases[opcode]
        return root(form, bits, how) if name == "sqrt" else calculated("div", form, [one, bits], how)

    inputs = {"a": np.array([*corners(form), one + 1, one + 3, 0, form.sign], WIDTHS[form.bits])}
    compare(lines, WIDTHS[form.bits], inputs, wanted, is_nan=form.is_nan, is_uniform=is_uniform)
