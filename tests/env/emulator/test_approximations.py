# SPDX-License-Identifier: Apache-2.0
"""Roots, reciprocals and approximated functions: special values, and the PTX ISA's bounds over dense samples."""

import math

import numpy as np
import pytest

from tests.env.emulator.ptx import each, evaluate, paired, ways
from tests.env.emulator.rounding import FORMATS
from tests.env.emulator.test_integers import WIDTHS

INF, NAN = math.inf, math.nan


def floats(values):
    return np.array(values, np.float32)


def run(opcode, values, is_uniform=False):
    bits = floats(values).view(np.uint32)
    return each({"d": f"{opcode} {{d}}, %a;"}, np.uint32, {"a": bits}, is_uniform=is_uniform)["d"].view(np.float32)


def spread(low, high, count=200_000):
    start, end = (int(floats([item]).view(np.uint32)[0]) for item in (low, high))
    step = max(1, (end - start) // count) | 1
    return np.arange(start, end, step).astype(np.uint32).view(np.float32)


def units(found, wanted):
    """Errors in units of float32's last place."""
    return np.abs(found.astype(np.float64) - wanted) / np.spacing(np.abs(wanted).astype(np.float32)).astype(np.float64)


SPECIAL = {
    "ex2": {-INF: 0, INF: INF, 0.0: 1, -150.5: 0, 128: INF, -149: 2.0**-149, -126: 2.0**-126, NAN: NAN},
    "lg2": {0.0: -INF, INF: INF, -1: NAN, -INF: NAN, 1: 0, 2.0**-149: -149, 8: 3, NAN: NAN},
    "sin": {0.0: 0.0, INF: NAN, -INF: NAN, NAN: NAN},
    "cos": {0.0: 1, INF: NAN, -INF: NAN, NAN: NAN},
    "tanh": {0.0: 0.0, INF: 1, -INF: -1, 30: 1, 2.0**-149: 2.0**-149, NAN: NAN},
    "sqrt": {0.0: 0.0, INF: INF, -1: NAN, -INF: NAN, 4: 2, NAN: NAN},
    "rsqrt": {0.0: INF, INF: 0.0, -1: NAN, -INF: NAN, 4: 0.5, NAN: NAN},
    "rcp": {0.0: INF, INF: 0.0, -INF: -0.0, 4: 0.25, -2: -0.5, NAN: NAN},
}
OF_MINUS_ZERO = {
    "ex2": 1, "lg2": -INF, "sin": -0.0, "cos": 1, "tanh": -0.0, "sqrt": -0.0, "rsqrt": -INF, "rcp": -INF,
}  # fmt: skip


@pytest.mark.parametrize("root, is_uniform", ways(SPECIAL))
def test_special_values(root, is_uniform):
    found = run(f"{root}.approx.f32", [*SPECIAL[root], -0.0], is_uniform)
    wanted = floats([*SPECIAL[root].values(), OF_MINUS_ZERO[root]])
    np.testing.assert_array_equal(found, wanted)
    assert (np.signbit(found) == np.signbit(wanted))[~np.isnan(wanted)].all()


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
    middle, low = floats(np.linspace(-1, 1, 100_001)), floats(np.linspace(-149.4, -126, 5_001))
    x = np.concatenate([spread(-(2.0**-20), -126.0), spread(2.0**-20, 127.99), middle, low])
    assert units(run("ex2.approx.f32", x), np.exp2(x.astype(np.float64))).max() <= 2


# Functions, where they are looked at, how far they may be off, and whether relative to the result.
BOUNDS = [
    ("lg2", spread(0.5, 2.0), 2.0**-22, False),
    ("lg2", np.concatenate([spread(2.0**-149, 0.5), spread(2.0, 3e38)]), 2.0**-22, True),
    *(
        (name, floats(np.linspace(-turns * math.pi, turns * math.pi, 200_001)), bound, False)
        for turns, bound in ((2, 2.0**-20.5), (100, 2.0**-14.7))
        for name in ("sin", "cos")
    ),
    ("tanh", np.concatenate([spread(2.0**-40, 20.0), -spread(2.0**-40, 20.0)]), 2.0**-11, True),
    *(
        (f"{name}{mark}", spread(2.0**-126, 2.0**126), bound, True)
        for name, bound in (("sqrt", 2.0**-23), ("rsqrt", 2.0**-22.9), ("rcp", 2.0**-23))
        for mark in ("", ".ftz")
    ),
]
EXACT = {"lg2": np.log2, "rsqrt": lambda x: 1 / np.sqrt(x), "rcp": np.reciprocal}


@pytest.mark.parametrize("name, x, bound, is_relative", BOUNDS, ids=[row[0] for row in BOUNDS])
def test_functions_stay_within_their_bounds(name, x, bound, is_relative):
    root, _, mark = name.partition(".")
    exact = EXACT.get(root, getattr(np, root, None))(x.astype(np.float64))
    found = run(f"{root}.approx{'.' if mark else ''}{mark}.f32", x)
    errors = np.abs(found - exact) / (np.abs(exact) if is_relative else 1)
    assert errors[(np.abs(exact) >= 2.0**-126) | (not is_relative)].max() <= bound


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_circular_functions_of_huge_numbers_are_bounded(name):
    x = np.concatenate([spread(1e9, 3.4e38, 20_000), -spread(1e9, 3.4e38, 20_000)])
    found = run(f"{name}.approx.f32", x)
    assert np.isfinite(found).all()
    assert np.abs(found).max() <= 1


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
    form, mark = FORMATS[kind], ".ftz" if (root, kind) == ("ex2", "bf16") else ""
    a = np.array([bits for bits in range(0, 1 << 16, 5) if not form.is_nan(bits)], np.uint16)
    found = evaluate(
        f"{root}.approx{mark}.{kind} %d, %a; cvt.f32.{kind} %e, %d; cvt.f32.{kind} %w, %a;",
        {"a": a}, {"d": np.uint16, "e": np.uint32, "w": np.uint32},
    )  # fmt: skip
    back, wide = found["e"].view(np.float32), found["w"].view(np.float32).astype(np.float64)
    exact = np.exp2(np.clip(wide, -400, 400)) if root == "ex2" else np.tanh(wide)
    largest, smallest = float(form.value(form.infinity - 1)), float(form.value(1 << form.mantissa))
    inside = (np.abs(exact) < largest) & (np.abs(exact) >= smallest)
    assert inside.sum() > 1000
    errors = np.abs(back[inside] - exact[inside]) / np.abs(exact[inside])
    assert errors.max() <= (2.0**-9.9 if kind == "f16" else 2.0**-7)
    assert np.isinf(back[exact > 1.01 * largest]).all()


@pytest.mark.parametrize("root", ["ex2", "tanh"])
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_functions_of_packed_halves_are_those_of_each(root, kind):
    mark = ".ftz" if (root, kind) == ("ex2", "bf16") else ""
    a = np.arange(0, 1 << 16, 7).astype(np.uint16)
    single = each({"d": f"{root}.approx{mark}.{kind} {{d}}, %a;"}, np.uint16, {"a": a})["d"]
    found = each({"d": f"{root}.approx{mark}.{kind}x2 {{d}}, %a;"}, np.uint32, {"a": paired(a)})["d"]
    assert (found == paired(single)).all()


@pytest.mark.parametrize("opcode", ["approx.f32", "full.f32", "approx.ftz.f32", "full.ftz.f32"])
def test_approximate_quotients(opcode):
    a, b = np.random.default_rng(1).standard_normal((2, 4096)).astype(np.float32)
    assert units(quotients(opcode, a, b), a.astype(np.float64) / b).max() <= 2


def quotients(opcode, a, b):
    inputs = {"a": a.view(np.uint32), "b": b.view(np.uint32)}
    return each({"d": f"div.{opcode} {{d}}, %a, %b;"}, np.uint32, inputs)["d"].view(np.float32)


def test_approximate_quotients_of_huge_divisors():
    """Beyond 2^126, `div.approx` gives 0, and NaN for an infinity."""
    b = floats([1.5 * 2.0**126, 2.0**127, 2.0**127, -(1.5 * 2.0**126), 2.0**126])
    found = quotients("approx.f32", floats([2.0**127, -3.0, INF, 2.0**127, 1.0]), b)
    np.testing.assert_array_equal(np.abs(found), floats([0, 0, NAN, 0, 2.0**-126]))
