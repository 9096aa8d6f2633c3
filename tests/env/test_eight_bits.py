# SPDX-License-Identifier: Apache-2.0
"""8-bit floats: how they are compared, by every pair of numbers, and varied."""

from itertools import pairwise

import pytest
import torch

from verl_kernel.env.comparison.compare import compare
from verl_kernel.env.eight_bits import EIGHT, differ_by_rounding, narrowed, widened
from verl_kernel.env.reference.jitter import jittered
from verl_kernel.env.reference.variation import learn

KINDS = sorted(EIGHT, key=str)


def numbers(dtype):
    return torch.arange(256, dtype=torch.int16).to(torch.uint8).view(dtype)


def neighbours(dtype):
    """Pairs of finite numbers between which there is no other, by sorting them."""
    values = sorted({value for value in numbers(dtype).float().tolist() if abs(value) < float("inf")})
    return set(pairwise(values))


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", KINDS)
def test_one_of_many_may_be_a_neighbour_and_nothing_else(dtype):
    every, near = numbers(dtype), neighbours(dtype)
    values = every.float().tolist()
    for a, one in zip(values, every, strict=True):
        for b, other in zip(values, every, strict=True):
            is_same = a == b or (a != a and b != b)
            is_right = is_same or (min(a, b), max(a, b)) in near
            assert _among_zeros(one, other) is is_right, (a, b)


def _among_zeros(one, other):
    zeros = torch.zeros(15, dtype=torch.uint8)
    pair = (torch.cat([zeros, number.view(torch.uint8).reshape(1)]).view(one.dtype) for number in (one, other))
    return differ_by_rounding(*pair)


@pytest.mark.parametrize(("off", "is_few"), [(1, True), (8, True), (9, False), (96, False)])
def test_only_few_may_be_neighbours(off, is_few):
    expected = torch.ones(96).to(torch.float8_e4m3fn)
    actual = torch.tensor([1.125] * off + [1.0] * (96 - off)).to(torch.float8_e4m3fn)
    assert differ_by_rounding(expected, actual) is is_few
    assert compare(expected, actual).ok is is_few
    assert not compare(expected, actual, "parity").ok


def test_the_first_wrong_number_is_named():
    expected = torch.ones(4, 4).to(torch.float8_e5m2)
    actual = expected.clone()
    actual[2, 1] = 4.0
    found = compare(expected, actual)
    assert (found.first_bad_index, found.first_bad) == ((2, 1), (1.0, 4.0))


@pytest.mark.parametrize("dtype", KINDS)
def test_widened_numbers_come_back(dtype):
    every = numbers(dtype)
    every = every[every.float().isfinite()]
    assert narrowed(widened(every), every).view(torch.uint8).tolist() == every.view(torch.uint8).tolist()
    most = torch.finfo(dtype).max
    assert narrowed(torch.tensor([3 * most, -3 * most]), every).float().tolist() == [most, -most]


def test_other_dtypes_are_left_alone():
    halves = torch.ones(3).half()
    assert widened(halves) is halves
    assert narrowed(halves, halves) is halves


@pytest.mark.parametrize("dtype", KINDS)
def test_inputs_are_varied_as_their_dtype_allows(dtype):
    draws = [[torch.randn(64, 64).to(dtype)] for _ in range(3)]
    variation = learn(draws, lambda some: some[0].dtype is dtype and bool(some[0].float().isfinite().all()))
    (varied,) = variation.apply(draws[0], 1)
    assert varied.dtype is dtype
    assert variation.high > 1
    assert not torch.equal(varied.float(), draws[0][0].float())


def test_their_last_digits_are_left_alone():
    tensor = torch.randn(8).to(torch.float8_e4m3fn)
    assert jittered([tensor])[0] is tensor
