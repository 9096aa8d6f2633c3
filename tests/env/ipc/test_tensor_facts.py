# SPDX-License-Identifier: Apache-2.0
"""What an output must look like besides its values."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from verl_kernel.env.ipc.tensor_facts import disagreement, tensor_facts

X = torch.zeros(2, 3, 4)


def differs(wanted, given_, strides="any"):
    found = disagreement([tensor_facts(wanted)], [tensor_facts(given_)], strides)
    return None if found is None else found[0]


@pytest.mark.parametrize("strides", ["any", "equal"])
def test_the_references_own_strides_pass(strides):
    assert differs(X.transpose(1, 2), X.transpose(1, 2), strides) is None


@pytest.mark.parametrize("strides", ["any", "equal"])
def test_contiguous_ones_pass(strides):
    assert differs(X.transpose(1, 2), X.transpose(1, 2).contiguous(), strides) is None


def test_another_order_of_dimensions_passes():
    assert differs(torch.zeros(2, 4, 3), X.transpose(1, 2)) is None


def test_another_order_fails_where_strides_must_agree():
    assert differs(torch.zeros(2, 4, 3), X.transpose(1, 2), "equal") == "WrongStride"


@pytest.mark.parametrize(
    "given_",
    {
        "one row for all": torch.zeros(1, 3, 4).expand(2, 3, 4),
        "one element for all": torch.zeros(()).expand(2, 3, 4),
        "gaps": torch.zeros(2, 3, 8)[..., ::2],
        "a part of a wider one": torch.zeros(2, 3, 9)[..., :4],
        "windows": torch.zeros(9).as_strided((2, 3, 4), (3, 1, 1)),
    }.values(),
)
def test_elements_that_share_a_place_or_leave_gaps_do_not_pass(given_):
    assert differs(X, given_) == "WrongStride"


@given(st.permutations(range(4)), st.lists(st.integers(1, 3), min_size=4, max_size=4))
def test_any_permutation_of_a_tensor_passes(order, shape):
    tensor = torch.zeros(shape).permute(order)
    assert differs(torch.zeros(tensor.shape), tensor) is None


@pytest.mark.parametrize(
    ("given_", "kind"),
    [(X.double(), "WrongDtype"), (torch.zeros(2, 3, 5), "WrongShape"), (X.to_sparse(), "WrongLayout")],
)
def test_what_else_differs_is_named(given_, kind):
    assert differs(X, given_) == kind


@pytest.mark.parametrize("stride", [None, "12", [1], [12, 4, 1, 1], [True, 4, 12], [[12], [4], [1]], {"a": 1}, 7])
def test_what_no_runner_says_of_strides_is_a_difference(stride):
    told = {**tensor_facts(torch.zeros(2, 4, 3)), "stride": stride}
    assert disagreement([tensor_facts(torch.zeros(2, 4, 3))], [told], "any")[0] == "WrongStride"
