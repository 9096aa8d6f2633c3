# SPDX-License-Identifier: Apache-2.0
"""Sums, products, quotients and fused products against exact fractions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.env.executor.ptx import cross, each
from tests.env.executor.rounding import BF16, FORMATS, calculated
from tests.env.executor.test_integers import WIDTHS

DIRECTIONS = ("rn", "rz", "rm", "rp")


def corners(form):
    """Zeros, subnormals, ones, neighbours, ties, the largest numbers, infinities and NaN, with both signs."""
    one = form.bias << form.mantissa
    sizes = [
        0, 1, (1 << form.mantissa) - 1, 1 << form.mantissa, one - 1, one, one + 1, one + (1 << form.mantissa - 1) + 1,
        one + (form.mantissa + 1 << form.mantissa), one - (form.mantissa + 1 << form.mantissa) + 1, form.infinity - 1,
        form.infinity, form.infinity + (1 << form.mantissa - 1),
    ]  # fmt: skip
    return [*sizes, *(size | form.sign for size in sizes)]


def wanted(name, form, row, how, is_flushed):
    row = [form.flushed(item) for item in row] if is_flushed else row
    bits = calculated(name, form, row, how)
    return form.flushed(bits) if is_flushed and bits is not None else bits


def check(cases, form, columns, is_uniform=False):
    """Cases: for each opcode, which calculation, direction and flushing it stands for."""
    operands = ("%a, %b", "%a, %b, %c")
    lines = {opcode: f"{opcode} {{d}}, {operands[case[0] == 'fma']};" for opcode, case in cases.items()}
    inputs = dict(zip("abc", columns, strict=False))
    found = each(lines, WIDTHS[form.bits], inputs, is_uniform=is_uniform)
    rows = [[int(item) for item in row] for row in zip(*columns, strict=True)]
    for opcode, (name, how, is_flushed) in cases.items():
        for row, got in zip(rows, map(int, found[opcode]), strict=True):
            bits = wanted(name, form, row[: 3 if name == "fma" else 2], how, is_flushed)
            is_right = form.is_nan(got) if bits is None else got == bits
            assert is_right, (opcode, [hex(item) for item in row], hex(got), bits if bits is None else hex(bits))


def opcodes(kind):
    """Of add, sub, mul, fma and div, with every rounding and flushing that a type has."""
    found = {}
    for name in ("add", "sub", "mul", "fma"):
        for how in DIRECTIONS if kind == "f32" else ("rn",):
            for flushing in ("", ".ftz") if kind in ("f32", "f16") else ("",):
                found[f"{name}.{how}{flushing}.{kind}"] = (name, how, bool(flushing))
    found |= {f"{name}.{kind}": (name, "rn", False) for name in ("add", "sub", "mul")}
    if kind in ("f32", "f64"):
        found[f"div.rn.{kind}"] = ("div", "rn", False)
    if kind == "f32":
        found |= {f"div.{how}.ftz.f32": ("div", "rn", True) for how in ("rn", "full")}
    return found


@pytest.mark.parametrize("kind", FORMATS)
def test_corner_cases_in_every_direction(kind):
    form, pairs = FORMATS[kind], {}
    values = corners(form)
    for opcode, case in opcodes(kind).items():
        if case[0] != "fma":
            pairs[opcode] = case
    check(pairs, form, cross(values, values, dtype=WIDTHS[form.bits]))


@pytest.mark.parametrize("kind", FORMATS)
def test_fused_products_of_corner_cases(kind):
    form = FORMATS[kind]
    fused = {opcode: case for opcode, case in opcodes(kind).items() if case[0] == "fma"}
    values = corners(form)
    few = [*values[::2], form.sign]
    check(fused, form, cross(few, few, values, dtype=WIDTHS[form.bits]))


@pytest.mark.parametrize("kind", FORMATS)
def test_uniform_values_are_rounded_as_those_of_lanes(kind):
    form = FORMATS[kind]
    few = corners(form)[1::3]
    check(opcodes(kind), form, cross(few, few, few[:3], dtype=WIDTHS[form.bits]), is_uniform=True)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(list(FORMATS)), st.data())
def test_any_values(kind, data):
    form = FORMATS[kind]
    number = st.integers(0, (1 << form.bits) - 1)
    near = st.builds(
        lambda low, sign: (form.bias - 2 << form.mantissa) + low | sign,
        st.integers(0, 4 << form.mantissa),
        st.sampled_from([0, form.sign]),
    )
    rows = data.draw(st.lists(st.tuples(*[number | near] * 3), min_size=32, max_size=32))
    columns = [np.array(column, WIDTHS[form.bits]) for column in zip(*rows, strict=True)]
    check(opcodes(kind), form, columns)


def test_a_fused_product_of_brain_floats_is_rounded_once():
    """7 x 37 = 259 lies between 258 and 260: what is added decides, however small it is."""
    a, b = BF16.rounded(7), BF16.rounded(37)
    tiny = BF16.rounded(BF16.value(1))
    rows = [(a, b, tiny), (a, b, tiny | 0x8000), (a | 0x8000, b, tiny), (a, b, 0)]
    columns = [np.array(column, np.uint16) for column in zip(*rows, strict=True)]
    check({"fma.rn.bf16": ("fma", "rn", False)}, BF16, columns)


@pytest.mark.parametrize("kind", ["f16x2", "bf16x2"])
def test_packed_halves_are_two_of_them(kind):
    form = FORMATS[kind[:-2]]
    a, b = cross(corners(form)[:9], corners(form)[9:], dtype=np.uint16)
    c = np.roll(a, 5)
    joined = [row.astype(np.uint32) | np.roll(row, 1).astype(np.uint32) << 16 for row in (a, b, c)]
    names = ["add", "sub", "mul", "fma.rn"] + (["add.ftz", "mul.ftz", "fma.rn.ftz"] if kind == "f16x2" else [])
    single = each(
        {name: f"{name}.{kind[:-2]} {{d}}, %a, %b{', %c' if 'fma' in name else ''};" for name in names},
        np.uint16,
        {"a": a, "b": b, "c": c},
    )
    packed = each(
        {name: f"{name}.{kind} {{d}}, %a, %b{', %c' if 'fma' in name else ''};" for name in names},
        np.uint32,
        dict(zip("abc", joined, strict=True)),
    )
    for name in names:
        assert ((packed[name] & 0xFFFF) == single[name]).all(), name
        assert ((packed[name] >> 16) == np.roll(single[name], 1)).all(), name
