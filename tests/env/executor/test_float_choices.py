# SPDX-License-Identifier: Apache-2.0
"""Extremes, signs, comparisons, classes and clamping of floats."""

import math

import numpy as np
import pytest

from tests.env.executor.ptx import cross, each
from tests.env.executor.rounding import FORMATS, calculated
from tests.env.executor.test_floats import corners
from tests.env.executor.test_integers import FORMS, RELATIONS, WIDTHS


def ordered(form, bits):
    """A key that orders numbers, -0 below +0."""
    return -(bits & form.sign - 1) - 1 if bits & form.sign else bits


def extreme(form, root, pair, knows_nan):
    numbers = [item for item in pair if not form.is_nan(item)]
    if len(numbers) < 2 and (knows_nan or not numbers):
        return None
    return (min if root == "min" else max)(numbers, key=lambda item: ordered(form, item))


@pytest.mark.parametrize("is_uniform", FORMS)
@pytest.mark.parametrize("kind", FORMATS)
def test_extremes_leave_out_nan_and_order_zeros(kind, is_uniform):
    form = FORMATS[kind]
    a, b = cross(corners(form), corners(form), dtype=WIDTHS[form.bits])
    marks = ["", ".NaN"] if kind != "f64" else [""]
    marks += [".ftz", ".ftz.NaN"] if kind in ("f32", "f16") else []
    lines = {f"{root}{mark}": f"{root}{mark}.{kind} {{d}}, %a, %b;" for root in ("min", "max") for mark in marks}
    found = each(lines, WIDTHS[form.bits], {"a": a, "b": b}, is_uniform=is_uniform)
    for name, row in found.items():
        root = name.partition(".")[0]
        for x, y, got in zip(map(int, a), map(int, b), map(int, row), strict=True):
            pair = [form.flushed(item) for item in (x, y)] if "ftz" in name else [x, y]
            bits = extreme(form, root, pair, "NaN" in name)
            assert form.is_nan(got) if bits is None else got == bits, (name, hex(x), hex(y), hex(got), bits)


@pytest.mark.parametrize("kind", ["f16x2", "bf16x2"])
def test_extremes_of_packed_halves(kind):
    form = FORMATS[kind[:-2]]
    a, b = cross(corners(form), corners(form), dtype=np.uint16)
    joined = {name: row.astype(np.uint32) << 16 | row[::-1] for name, row in (("a", a), ("b", b))}
    names = ["min", "max", "min.NaN", "max.NaN"]
    single = each({name: f"{name}.{kind[:-2]} {{d}}, %a, %b;" for name in names}, np.uint16, {"a": a, "b": b})
    packed = each({name: f"{name}.{kind} {{d}}, %a, %b;" for name in names}, np.uint32, joined)
    for name in names:
        assert (packed[name] >> 16 == single[name]).all()
        assert (packed[name] & 0xFFFF == single[name][::-1]).all()


@pytest.mark.parametrize("is_uniform", FORMS)
@pytest.mark.parametrize("kind", FORMATS)
def test_signs(kind, is_uniform):
    form = FORMATS[kind]
    a = cross([item for item in corners(form) if not form.is_nan(item)], dtype=WIDTHS[form.bits])[0]
    marks = ["", ".ftz"] if kind in ("f32", "f16") else [""]
    lines = {f"{root}{mark}": f"{root}{mark}.{kind} {{d}}, %a;" for root in ("neg", "abs") for mark in marks}
    for name, row in each(lines, a.dtype.type, {"a": a}, is_uniform=is_uniform).items():
        values = [form.flushed(int(item)) if "ftz" in name else int(item) for item in a]
        wanted = [item ^ form.sign if "neg" in name else item & ~form.sign for item in values]
        assert [int(item) for item in row] == wanted, name


@pytest.mark.parametrize("is_uniform", FORMS)
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_a_sign_is_copied_from_the_first_operand(kind, is_uniform):
    form = FORMATS[kind]
    a, b = cross(corners(form), corners(form), dtype=WIDTHS[form.bits])
    found = each({"d": f"copysign.{kind} {{d}}, %a, %b;"}, a.dtype.type, {"a": a, "b": b}, is_uniform=is_uniform)
    wanted = [int(x) & form.sign | int(y) & ~form.sign for x, y in zip(a, b, strict=True)]
    assert [int(item) for item in found["d"]] == wanted


@pytest.mark.parametrize("is_uniform", FORMS)
@pytest.mark.parametrize("kind", FORMATS)
def test_comparisons(kind, is_uniform):
    form = FORMATS[kind]
    a, b = cross(corners(form), corners(form), dtype=WIDTHS[form.bits])
    marks = ["", ".ftz"] if kind in ("f32", "f16") else [""]
    names = [*RELATIONS, *(f"{name}u" for name in RELATIONS), "num", "nan"]
    lines = {f"{name}{mark}": f"setp.{name}{mark}.{kind} {{d}}, %a, %b;" for name in names for mark in marks}
    for name, row in each(lines, bool, {"a": a, "b": b}, is_uniform=is_uniform).items():
        relation, is_flushed = name.partition(".")[0], "ftz" in name
        for x, y, got in zip(map(int, a), map(int, b), row, strict=True):
            pair = [form.value(form.flushed(item) if is_flushed else item) for item in (x, y)]
            has_nan = any(isinstance(item, float) and math.isnan(item) for item in pair)
            if relation in ("num", "nan"):
                wanted = has_nan == (relation == "nan")
            else:
                wanted = relation.endswith("u") if has_nan else RELATIONS[relation[:2]](*pair)
            assert bool(got) == wanted, (name, hex(x), hex(y))


@pytest.mark.parametrize("is_uniform", FORMS)
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_classes(kind, is_uniform):
    form = FORMATS[kind]
    a = cross(corners(form), dtype=WIDTHS[form.bits])[0]
    names = ["finite", "infinite", "number", "notanumber", "normal", "subnormal"]
    found = each({name: f"testp.{name}.{kind} {{d}}, %a;" for name in names}, bool, {"a": a}, is_uniform=is_uniform)
    for place, bits in enumerate(map(int, a)):
        size = bits & form.sign - 1
        is_subnormal = 0 < size < 1 << form.mantissa  # zeros are normal, says the PTX ISA
        wanted = {
            "finite": size < form.infinity, "infinite": size == form.infinity, "number": size <= form.infinity,
            "notanumber": size > form.infinity, "normal": size < form.infinity and not is_subnormal,
            "subnormal": is_subnormal,
        }  # fmt: skip
        assert {name: bool(row[place]) for name, row in found.items()} == wanted, hex(bits)


@pytest.mark.parametrize("is_uniform", FORMS)
def test_saturated_results(is_uniform):
    form = FORMATS["f32"]
    one = form.rounded(1)
    a, b = cross([*corners(form), form.rounded(0.5)], [*corners(form)[::3], form.rounded(0.25)])
    lines = {
        f"{name}{mark}": f"{name}.rn{mark}.sat.f32 {{d}}, %a, %b;"
        for name in ("add", "sub", "mul")
        for mark in ("", ".ftz")
    }
    for name, row in each(lines, np.uint32, {"a": a, "b": b}, is_uniform=is_uniform).items():
        root, flush = name.partition(".")[0], form.flushed if "ftz" in name else int
        for x, y, got in zip(a, b, map(int, row), strict=True):
            bits = calculated(root, form, [flush(int(x)), flush(int(y))])
            wanted = 0 if bits is None or bits & form.sign else flush(min(bits, one))
            assert got == wanted, (name, hex(x), hex(y), hex(got))


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_relu_keeps_nan_and_takes_negative_results_for_zero(kind):
    form = FORMATS[kind]
    a, b = cross(corners(form), corners(form)[::3], dtype=np.uint16)
    c = np.full_like(a, form.sign)
    lines = {"one": f"fma.rn.relu.{kind} {{d}}, %a, %b, %c;"}
    row = each(lines, np.uint16, {"a": a, "b": b, "c": c})["one"]
    for x, y, got in zip(map(int, a), map(int, b), map(int, row), strict=True):
        bits = calculated("fma", form, [x, y, form.sign])
        if bits is None:
            assert form.is_nan(got), (hex(x), hex(y), hex(got))
        else:
            assert got & ~form.sign == (0 if bits & form.sign else bits), (hex(x), hex(y), hex(got))
