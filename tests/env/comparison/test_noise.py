# SPDX-License-Identifier: Apache-2.0
"""What single elements of bfloat16 may be off."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention

from verl_kernel.env.comparison.compare import compare

BFLOAT16 = torch.bfloat16


def made(off, dtype=BFLOAT16):
    """A tensor of ones and one whose elements are off by these parts of what is allowed, 2e-2."""
    expected = torch.ones(len(off), dtype=dtype)
    return expected, (1 + 0.02 * torch.tensor(off)).to(dtype)


def test_a_few_elements_may_be_off_by_more():
    assert compare(*made([1.5] + [0.0] * 63)).ok


def test_many_may_not():
    assert not compare(*made([1.5] * 8 + [0.0] * 56)).ok


def test_none_may_be_off_by_much_more():
    assert not compare(*made([2.5] + [0.0] * 63)).ok


def test_the_first_that_is_off_is_named_as_before():
    assert compare(*made([0.0, 1.5, 2.5] + [0.0] * 61)).first_bad_index == (1,)


def test_all_may_be_off_by_as_much_as_is_allowed():
    assert compare(*made([0.75] * 64)).ok


def test_a_single_number_may_not_be_off_by_more():
    assert not compare(*made([1.5])).ok


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_other_types_have_no_such_room(dtype):
    assert not compare(*made([1.5] + [0.0] * 63, dtype)).ok


def test_parity_has_no_such_room():
    assert not compare(*made([1.5] + [0.0] * 63), "parity").ok


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_must_be_so_on_both_sides(value):
    expected, actual = made([1.5] + [0.0] * 63)
    actual[5] = value
    assert not compare(expected, actual).ok


def test_what_is_not_finite_on_both_sides_is_no_error():
    expected, actual = made([1.5] + [0.0] * 63)
    expected[5] = actual[5] = math.inf
    assert compare(expected, actual).ok


@given(st.lists(st.floats(0, 3), min_size=1, max_size=40))
def test_agrees_with_an_oracle(off):
    expected, actual = made(off)
    parts = [abs(value - 1) / 0.02 for value in actual.double().tolist()]
    is_noise = max(parts) <= 2 and sum(part**2 for part in parts) <= 0.25 * len(parts)
    assert compare(expected, actual).ok == (max(parts) <= 1 or is_noise)


def attention(weights_in):
    """Attention in bfloat16, and as a kernel computes it whose weights have a type."""
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 8, 512, 64).bfloat16()
    scores = q.float() @ k.float().mT / 8
    weights = (scores - scores.amax(-1, keepdim=True)).exp().tril()
    mixed = weights.to(weights_in).float() @ v.float()
    return q, k, v, (mixed / weights.sum(-1, keepdim=True)).bfloat16()


def test_attention_may_have_weights_of_16_bits():
    q, k, v, mixed = attention(BFLOAT16)
    assert compare(scaled_dot_product_attention(q, k, v, is_causal=True), mixed).ok


def test_attention_may_not_have_weights_of_8_bits():
    q, k, v, mixed = attention(torch.float8_e4m3fn)
    assert not compare(scaled_dot_product_attention(q, k, v, is_causal=True), mixed).ok


def test_attention_may_not_leave_out_a_key():
    q, k, v, mixed = attention(BFLOAT16)
    without = scaled_dot_product_attention(q[:, -1:], k[:, 1:], v[:, 1:])
    assert not compare(without, mixed[:, -1:]).ok
