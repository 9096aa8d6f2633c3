# SPDX-License-Identifier: Apache-2.0
"""The comparison against a naive oracle, and the outputs that must never pass."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from verl_kernel.env import compare as module
from verl_kernel.env.compare import compare

TOLERANCE = {torch.float32: 1e-4, torch.float16: 1e-2}
values = st.one_of(
    st.floats(-1e4, 1e4, width=16),
    st.sampled_from([0.0, -0.0, 1e-7, math.inf, -math.inf, math.nan]),
)


def naive(expected, actual, tolerance, parity):
    """Element by element in Python floats."""
    wanted, given = expected.double().flatten().tolist(), actual.double().flatten().tolist()
    finite = [value for value in wanted if math.isfinite(value)]
    rms = math.sqrt(sum(value * value for value in finite) / len(finite)) if finite else 0.0
    bad = []
    for index, (w, g) in enumerate(zip(wanted, given, strict=True)):
        if math.isfinite(w) and math.isfinite(g):
            allowed = 1e-2 * abs(w) + 1e-2 if parity else tolerance * abs(w) + tolerance * rms
            good = abs(g - w) <= allowed
        else:
            good = w == g or (math.isnan(w) and math.isnan(g))
        if not good:
            bad.append(index)
    return bad


@given(
    st.lists(st.tuples(values, values, st.booleans()), min_size=1, max_size=30),
    st.sampled_from(list(TOLERANCE)),
    st.sampled_from(["scaled", "parity"]),
    st.integers(1, 7),
)
def test_agrees_with_the_oracle_in_chunks_of_any_size(pairs, dtype, profile, chunk):
    expected = torch.tensor([wanted for wanted, _, _ in pairs]).to(dtype)
    actual = torch.tensor([wanted * (1 + 5e-3) if near else other for wanted, other, near in pairs]).to(dtype)
    bad = naive(expected, actual, TOLERANCE[dtype], profile == "parity")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK", chunk)
        found = compare(expected, actual, profile)
    assert found.ok == (not bad)
    assert found.first_bad_index == ((bad[0],) if bad else None)


@given(st.floats(1e-30, 1e30), st.sampled_from(list(TOLERANCE)), st.integers(0, 100))
def test_zeros_never_pass_however_small_the_reference(scale, dtype, seed):
    expected = (torch.randn(4, 8, generator=torch.Generator().manual_seed(seed)) * scale).to(dtype)
    if not expected.isfinite().all() or not expected.any():
        return
    assert compare(expected, expected.clone()).ok
    assert not compare(expected, torch.zeros_like(expected)).ok


@given(st.sampled_from([torch.int8, torch.int32, torch.int64, torch.bool]), st.integers(0, 11))
def test_integers_are_exact(dtype, where):
    expected = torch.arange(12).reshape(3, 4).to(dtype)
    actual = expected.clone()
    actual.view(-1)[where] = not actual.view(-1)[where] if dtype is torch.bool else actual.view(-1)[where] + 1
    for profile in ("scaled", "parity"):
        assert compare(expected, expected.clone(), profile).ok
        assert compare(expected, actual, profile).first_bad_index == divmod(where, 4)


def test_large_integers_are_not_rounded():
    expected = torch.tensor([2**60])
    assert not compare(expected, expected + 1).ok


def test_lower_precision_does_not_pass_as_float32():
    x = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    assert not compare(x, x.half().float()).ok
    assert compare(x.half(), (x.half().float() * (1 + 1e-3)).half()).ok


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float64, 1e-7), (torch.float32, 1e-4), (torch.float16, 1e-2), (torch.bfloat16, 1e-2)],
)
def test_the_tolerance_of_a_dtype_is_its_relative_part_and_as_much_of_the_rms(dtype, tolerance):
    """The nearest value that is allowed and the next one: with ones, both parts together are twice the tolerance."""
    ones = torch.ones(8, dtype=dtype)
    steps = 1 + torch.arange(-2, 3, dtype=torch.float64) * torch.finfo(dtype).eps + 2 * tolerance
    for value in steps.to(dtype).unique():
        actual = ones.clone()
        actual[3] = value
        assert compare(ones, actual).ok == (value.double().item() - 1 <= 2 * tolerance), value


def test_the_largest_relative_error_is_against_the_value_or_the_rms_whichever_is_larger():
    expected = torch.tensor([-4.0, 0.0, 0.0, 0.0])  # rms 2
    for where, error, relative in ((0, 1.0, 0.25), (1, 1.0, 0.5), (2, -0.5, 0.25), (0, 4.0, 1.0)):
        actual = expected.clone()
        actual[where] += error
        assert compare(expected, actual).max_rel == relative


def test_numbers_of_a_disagreement():
    expected = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    actual = torch.tensor([[1.0, 2.0], [3.5, 4.0]])
    found = compare(expected, actual)
    assert (found.ok, found.max_abs, found.first_bad_index) == (False, 0.5, (1, 0))
    assert found.max_rel == pytest.approx(0.5 / 3.0)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_non_finite_values_must_be_the_references(bad):
    plain, other = torch.tensor([1.0, 2.0]), torch.tensor([1.0, bad])
    for profile in ("scaled", "parity"):
        assert compare(other, other.clone(), profile).ok
        assert not compare(plain, other, profile).ok
        assert not compare(other, plain, profile).ok


def test_shape_and_dtype_must_match():
    x = torch.ones(4)
    assert not compare(x, torch.ones(2, 2)).ok
    assert not compare(x, torch.ones(4, dtype=torch.float64)).ok
    assert not compare(x, torch.ones(1)).ok


def test_huge_doubles_do_not_open_the_tolerance():
    expected = torch.tensor([1e300, 1.0], dtype=torch.float64)
    assert compare(expected, expected.clone()).ok
    assert not compare(expected, torch.tensor([-1e300, 1.0], dtype=torch.float64)).ok


def test_an_all_zero_reference_wants_zeros():
    zero = torch.zeros(3)
    assert compare(zero, -zero).ok
    found = compare(zero, zero + 1e-9)
    assert not found.ok and found.max_rel is None


@pytest.mark.parametrize("shape", [(0,), (0, 3), (), (1,)])
def test_small_shapes(shape):
    assert compare(torch.ones(shape), torch.ones(shape)).ok


def test_complex_and_strided_outputs():
    x = torch.randn(3, 4, dtype=torch.complex64)
    assert compare(x, x.clone()).ok and not compare(x, x.conj().resolve_conj()).ok
    assert compare(x.real.t(), x.real.t().contiguous()).ok


def test_unknown_profile():
    with pytest.raises(ValueError, match="scaled or parity"):
        compare(torch.ones(1), torch.ones(1), "loose")
