# SPDX-License-Identifier: Apache-2.0
"""What an output must look like besides its values, and how what a runner says of it is read: with suspicion."""

import json
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from verl_kernel.env.clocks.cuda.rounds import _read_forms, _read_ms
from verl_kernel.env.ipc.tensor_facts import disagreement, read_facts, tensor_facts

X = torch.zeros(2, 3, 4)


def differs(wanted, given_, strides="any"):
    found = disagreement([tensor_facts(wanted)], [tensor_facts(given_)], strides)
    return None if found is None else found[0]


@pytest.mark.parametrize("strides", ["any", "equal"])
@pytest.mark.parametrize("given_", [X.transpose(1, 2), X.transpose(1, 2).contiguous()])
def test_the_references_own_strides_and_contiguous_ones_pass(given_, strides):
    assert differs(X.transpose(1, 2), given_, strides) is None


@pytest.mark.parametrize(("strides", "found"), [("any", None), ("equal", "WrongStride")])
def test_another_order_of_dimensions_fails_where_strides_count(strides, found):
    assert differs(torch.zeros(2, 4, 3), X.transpose(1, 2), strides) == found


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
    "given_, kind", [(X.double(), "WrongDtype"), (torch.zeros(2, 3, 5), "WrongShape"), (X.to_sparse(), "WrongLayout")]
)
def test_what_else_differs_is_named(given_, kind):
    assert differs(X, given_) == kind


@pytest.mark.parametrize("stride", [None, "12", [1], [12, 4, 1, 1], [True, 4, 12], [[12], [4], [1]], {"a": 1}, 7])
def test_what_no_runner_says_of_strides_is_a_difference(stride):
    told = {**tensor_facts(torch.zeros(2, 4, 3)), "stride": stride}
    assert disagreement([tensor_facts(torch.zeros(2, 4, 3))], [told], "any")[0] == "WrongStride"


FACTS = json.loads(json.dumps([tensor_facts(torch.ones(2, 3)), tensor_facts(torch.ones(()))]))


def test_facts_come_back_as_they_were_said():
    assert read_facts(FACTS) == FACTS
    assert read_facts([{**FACTS[0], "more": 1}]) == FACTS[:1]


@pytest.mark.parametrize(("read", "value"), [
    *((read_facts, value) for value in (None, "xs", 3, {}, [3], [None], [FACTS], [{}], [{"dtype": "float32"}])),
    *((partial(_read_forms, count=2), value) for value in (None, "xs", {}, [{}], [{}, 3], [{}, "xs"])),
])  # fmt: skip
def test_what_is_no_list_of_facts_or_forms_is_refused(read, value):
    with pytest.raises((ValueError, LookupError)):
        read(value)


def test_more_forms_than_asked_for_are_ignored():
    assert _read_forms([{"output": 1}, {"output": 2}, 3], 2) == [{"output": 1}, {"output": 2}]


def test_milliseconds_are_a_number():
    assert _read_ms(0.25) == 0.25
    for value in (None, "1", [1.0], {}):
        with pytest.raises(ValueError, match="number"):
            _read_ms(value)
