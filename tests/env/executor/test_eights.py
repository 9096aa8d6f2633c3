# SPDX-License-Identifier: Apache-2.0
"""8-bit floats: all 256 of them, both ways."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from tests.env.executor.ptx import evaluate
from tests.env.executor.rounding import F16, F32, Format

E4M3, E5M2 = Format(4, 3), Format(5, 2)
KINDS = {"e4m3": (E4M3, 0x7E), "e5m2": (E5M2, 0x7B)}


def value(kind, byte):
    """Its number; None for NaN, and e4m3 has no infinity."""
    form, _ = KINDS[kind]
    size = byte & 0x7F
    if kind == "e4m3":
        if size == 0x7F:
            return None
        exponent, mantissa = divmod(size, 8)
        number = Fraction(mantissa + 8 * bool(exponent)) * Fraction(2) ** (max(1, exponent) - 10)
        return -number if byte & 0x80 else number
    return None if size > form.infinity else form.value(byte)


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_to_halves(kind):
    low = np.arange(256).astype(np.uint16)
    pair = low | (255 - low) << 8
    found = evaluate(f"cvt.rn.f16x2.{kind}x2 %d, %a;", {"a": pair.astype(np.uint16)}, {"d": np.uint32})["d"]
    for byte, word in enumerate(map(int, found)):
        for item, half in ((byte, word & 0xFFFF), (255 - byte, word >> 16)):
            number = value(kind, item)
            if number is None:
                assert F16.is_nan(half)
            else:
                assert F16.value(half) == number, hex(item)
                assert half >> 15 == item >> 7, hex(item)


def nearest(kind, number, sign):
    """The byte of the nearest number, of two the one with an even mantissa, at most the largest."""
    largest = KINDS[kind][1]
    sizes = range(largest + 1)
    size = min(sizes, key=lambda item: (abs(value(kind, item) - abs(number)), item & 1))
    return size | sign


@pytest.mark.parametrize("kind", KINDS)
def test_floats_to_bytes_are_rounded_and_clamped(kind):
    numbers = [value(kind, byte) for byte in range(KINDS[kind][1] + 1)]
    middles = [(low + high) / 2 for low, high in itertools.pairwise(numbers)]
    bits = [F32.rounded(item) for item in (*numbers, *middles, numbers[-1] * Fraction(17, 16), Fraction(10) ** 9)]
    bits = [near for item in bits for near in (item, item + 1, max(item, 1) - 1)]
    bits += [item | F32.sign for item in bits]
    a = np.array(bits, np.uint32)
    found = evaluate(f"cvt.rn.satfinite.{kind}x2.f32 %d, %a, %b;", {"a": a, "b": a[::-1].copy()}, {"d": np.uint16})["d"]
    wanted = [nearest(kind, F32.value(item), item >> 24 & 0x80) for item in bits]
    assert [int(item) >> 8 for item in found] == wanted
    assert [int(item) & 0xFF for item in found] == wanted[::-1]


@pytest.mark.parametrize("kind", KINDS)
def test_infinities_and_nan_to_bytes(kind):
    a = np.array([F32.infinity, F32.infinity | F32.sign, 0x7FC00000, 0x7F800001], np.uint32)
    found = evaluate(f"cvt.rn.satfinite.{kind}x2.f32 %d, %a, %a;", {"a": a}, {"d": np.uint16})["d"]
    largest = KINDS[kind][1]
    assert [int(item) & 0xFF for item in found] == [largest, largest | 0x80, 0x7F, 0x7F]


@pytest.mark.parametrize("kind", KINDS)
def test_all_halves_to_bytes(kind):
    halves = np.arange(0, 1 << 16, 31).astype(np.uint32)
    found = evaluate(f"cvt.rn.satfinite.{kind}x2.f16x2 %d, %a;", {"a": halves << 16 | halves[::-1]}, {"d": np.uint16})[
        "d"
    ]
    for place in range(len(halves)):
        half, got = int(halves[place]), int(found[place]) >> 8
        number = F16.value(half)
        if F16.is_nan(half):
            assert got & 0x7F == 0x7F
        elif isinstance(number, float):
            assert got == KINDS[kind][1] | half >> 8 & 0x80
        else:
            assert got == nearest(kind, number, half >> 8 & 0x80), hex(half)
    assert (found[::-1] >> 8 == (found & 0xFF)).all()
