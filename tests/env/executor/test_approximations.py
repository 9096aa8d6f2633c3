# SPDX-License-Identifier: Apache-2.0
"""Roots, reciprocals and approximated functions: special values, and the PTX ISA's bounds over dense samples."""

import math

import numpy as np
import pytest

from tests.env.executor.ptx import each, evaluate
from tests.env.executor.rounding import F32, FORMATS
from tests.env.executor.test_integers import FORMS, WIDTHS

INF, NAN = math.inf, math.nan


def floats(values):
    return np.array(values, np.float32)


def run(opcode, values, is_uniform=False):
    """An instruction of float32 on values."""
    bits = floats(values).view(np.uint32)
    return each({"d": f"{opcode} {{d}}, %a;"}, np.uint32, {"a": bits}, is_uniform=is_uniform)["d"].view(np.float32)


def spread(low, high, count=200_000):
    """Floats between two bit patterns, with an odd step."""
    start, end = (int(floats([item]).view(np.uint32)[0]) for item in (low, high))
    step = max(1, (end - start) // count) | 1
    return np.arange(start, end, step).astype(np.uint32).view(np.float32)


def units(found, wanted):
    """Errors in units of float32's last place."""
    return np.abs(found.astype(np.float64) - wanted) / np.spacing(np.abs(wanted).astype(np.float32)).astype(np.float64)


SPECIAL = {
    "ex2": [
        (-INF, 0),
        (INF, INF),
        (0.0, 1),
        (-0.0, 1),
        (128, INF),
        (-150.5, 0),
        (-149, 2.0**-149),
        (-126, 2.0**-126),
        (NAN, NAN),
    ],
    "lg2": [
        (0.0, -INF),
        (-0.0, -INF),
        (INF, INF),
        (-1, NAN),
        (-INF, NAN),
        (1, 0),
        (2.0**-149, -149),
        (8, 3),
        (NAN, NAN),
    ],
    "sin": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (NAN, NAN)],
    "cos": [(0.0, 1), (-0.0, 1), (INF, NAN), (-INF, NAN), (NAN, NAN)],
    "tanh": [(0.0, 0.0), (-0.0, -0.0), (INF, 1), (-INF, -1), (30, 1), (2.0**-149, 2.0**-149), (NAN, NAN)],
    "sqrt": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-1, NAN), (-INF, NAN), (4, 2), (NAN, NAN)],
    "rsqrt": [(0.0, INF), (-0.0, -INF), (INF, 0.0), (-1, NAN), (-INF, NAN), (4, 0.5), (NAN, NAN)],
    "rcp": [(0.0, INF), (-0.0, -INF), (INF, 0.0), (-INF, -0.0), (4, 0.25), (-2, -0.5), (NAN, NAN)],
}


@pytest.mark.parametrize("is_uniform", FORMS)
@pytest.mark.parametrize("root", SPECIAL)
def test_special_values(root, is_uniform):
    values, wanted = zip(*SPECIAL[root], strict=True)
    found = run(f"{root}.approx.f32", values, is_uniform)
    for value, got, right in zip(values, found, floats(wanted), strict=True):
        assert math.isnan(got) if math.isnan(right) else got == right, (value, got)
        assert math.isnan(right) or math.copysign(1, got) == math.copysign(1, right), (value, got)


@pytest.mark.parametrize("root", [root for root in SPECIAL if root != "tanh"])
def test_flushing(root):
    tiny = floats([2.0**-130, -(2.0**-130), 1.5])
    zeros = floats([0.0, -0.0, 1.5])
    found, plain = run(f"{root}.approx.ftz.f32", tiny), run(f"{root}.approx.f32", zeros)
    assert (found.view(np.uint32) == plain.view(np.uint32)).all()
    if root == "ex2":
        assert run("ex2.approx.ftz.f32", [-127.0])[0] == 0
        assert run("ex2.approx.f32", [-127.0])[0] == 2.0**-127
    if root == "rcp":
        assert run("rcp.approx.ftz.f32", [2.0**127])[0] == 0
        assert run("rcp.approx.f32", [2.0**127])[0] == 2.0**-127


def test_powers_of_two_err_by_two_units_at_most():
    x = np.concatenate([spread(-(2.0**-20), -126.0), spread(2.0**-20, 127.99), floats(np.linspace(-1, 1, 100_001))])
    assert units(run("ex2.approx.f32", x), np.exp2(x.astype(np.float64))).max() <= 2
    low = floats(np.linspace(-149.4, -126, 5_001))
    assert units(run("ex2.approx.f32", low), np.exp2(low.astype(np.float64))).max() <= 2


def test_logarithms_stay_within_their_bounds():
    middle, rest = spread(0.5, 2.0), np.concatenate([spread(2.0**-149, 0.5), spread(2.0, 3e38)])
    assert np.abs(run("lg2.approx.f32", middle) - np.log2(middle.astype(np.float64))).max() <= 2.0**-22
    exact = np.log2(rest.astype(np.float64))
    assert (np.abs(run("lg2.approx.f32", rest) - exact) / np.abs(exact)).max() <= 2.0**-22


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_circular_functions_stay_within_their_bounds(name):
    exact = getattr(np, name)
    for most, bound in ((2 * math.pi, 2.0**-20.5), (100 * math.pi, 2.0**-14.7)):
        x = floats(np.linspace(-most, most, 200_001))
        assert np.abs(run(f"{name}.approx.f32", x) - exact(x.astype(np.float64))).max() <= bound


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_circular_functions_of_huge_numbers_are_bounded(name):
    x = np.concatenate([spread(1e9, 3.4e38, 20_000), -spread(1e9, 3.4e38, 20_000)])
    found = run(f"{name}.approx.f32", x)
    assert np.isfinite(found).all()
    assert np.abs(found).max() <= 1


def test_tanh_stays_within_its_bound():
    x = np.concatenate([spread(2.0**-40, 20.0), -spread(2.0**-40, 20.0)])
    exact = np.tanh(x.astype(np.float64))
    assert (np.abs(run("tanh.approx.f32", x) - exact) / np.abs(exact)).max() <= 2.0**-11


def test_roots_and_reciprocals_stay_within_their_bounds():
    x = spread(2.0**-126, 2.0**126)
    wide = x.astype(np.float64)
    exact = {"sqrt": np.sqrt(wide), "rsqrt": 1 / np.sqrt(wide), "rcp": 1 / wide}
    for name, bound in (("sqrt", 2.0**-23), ("rsqrt", 2.0**-22.9), ("rcp", 2.0**-23)):
        for mark in ("", ".ftz"):
            found = run(f"{name}.approx{mark}.f32", x)
            normal = exact[name] >= 2.0**-126
            assert (np.abs(found - exact[name]) / exact[name])[normal].max() <= bound


@pytest.mark.parametrize("kind, dtype", [("f32", np.float32), ("f64", np.float64)])
def test_rounded_roots_and_reciprocals(kind, dtype):
    x = np.abs(np.random.default_rng(0).standard_normal(4000)).astype(dtype)
    word = WIDTHS[8 * x.itemsize]
    found = each({name: f"{name}.rn.{kind} {{d}}, %a;" for name in ("sqrt", "rcp")}, word, {"a": x.view(word)})
    assert (found["sqrt"].view(dtype) == np.sqrt(x)).all()
    assert (found["rcp"].view(dtype) == 1 / x).all()


@pytest.mark.parametrize("root", ["ex2", "tanh"])
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_functions_of_halves(root, kind):
    mark = ".ftz" if (root, kind) == ("ex2", "bf16") else ""
    form = FORMATS[kind]
    a = np.array([bits for bits in range(0, 1 << 16, 5) if not bits & 0x7FFF > form.infinity], np.uint16)
    found = each({"d": f"{root}.approx{mark}.{kind} {{d}}, %a;"}, np.uint16, {"a": a})["d"]
    wide = evaluate(f"cvt.f32.{kind} %d, %a;", {"a": a}, {"d": np.uint32})["d"].view(np.float32).astype(np.float64)
    exact = np.exp2(np.clip(wide, -400, 400)) if root == "ex2" else np.tanh(wide)
    largest, smallest = float(form.value(form.infinity - 1)), float(form.value(1 << form.mantissa))
    back = evaluate(f"cvt.f32.{kind} %d, %a;", {"a": found}, {"d": np.uint32})["d"].view(np.float32)
    inside = (np.abs(exact) < largest) & (np.abs(exact) >= smallest)
    bound = 2.0**-9.9 if kind == "f16" else 2.0**-7
    errors = np.abs(back[inside] - exact[inside]) / np.abs(exact[inside])
    assert inside.sum() > 1000
    assert errors.max() <= bound
    assert np.isinf(back[exact > 1.01 * largest]).all()


def test_approximate_quotients():
    a = np.random.default_rng(1).standard_normal(4096).astype(np.float32)
    b = np.random.default_rng(2).standard_normal(4096).astype(np.float32)
    inputs = {"a": a.view(np.uint32), "b": b.view(np.uint32)}
    for opcode in ("div.approx.f32", "div.full.f32", "div.approx.ftz.f32", "div.full.ftz.f32"):
        found = each({"d": f"{opcode} {{d}}, %a, %b;"}, np.uint32, inputs)["d"].view(np.float32)
        assert units(found, a.astype(np.float64) / b).max() <= 2


def test_approximate_quotients_of_huge_divisors():
    """Beyond 2^126, `div.approx` gives 0, and NaN for an infinity."""
    a = floats([2.0**127, -3.0, INF, 2.0**127, 1.0]).view(np.uint32)
    b = floats([1.5 * 2.0**126, 2.0**127, 2.0**127, -(1.5 * 2.0**126), 2.0**126]).view(np.uint32)
    found = each({"d": "div.approx.f32 {d}, %a, %b;"}, np.uint32, {"a": a, "b": b})["d"].view(np.float32)
    assert math.isnan(found[2])
    assert [*np.abs(found[[0, 1, 3]])] == [0, 0, 0]
    assert found[4] == 2.0**-126
    assert not F32.is_nan(int(found[4:].view(np.uint32)[0]))
