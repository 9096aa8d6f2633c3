# SPDX-License-Identifier: Apache-2.0
"""Where an output's structure differs is said in a sentence, whatever a runner sends."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from verl_kernel.env.ipc.shared_memory import flatten, unflatten
from verl_kernel.env.ipc.structure import structural_difference

ONE = torch.zeros(1)
TREES = st.recursive(
    st.just(ONE) | st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=6,
)
ANYTHING = st.recursive(
    st.none() | st.integers() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["tensor", "value", "list", "tuple", "dict", "x"]), inner)
    ),
)


def tree(value):
    return flatten(value, [])


@pytest.mark.parametrize(
    ("wanted", "given", "said"),
    [
        (ONE, (ONE,), "the output is a tuple, and the reference's is a tensor"),
        (ONE, None, "the output is None, and the reference's is a tensor"),
        ((ONE, ONE), (ONE,), "the output is a tuple of 1, and the reference's of 2"),
        ({"loss": ONE, "aux": ONE}, {"loss": ONE}, "the output lacks the key 'aux'"),
        ({"loss": ONE}, {"loss": ONE, "aux": ONE}, "the output has, unlike the reference, the key 'aux'"),
        ({"a": [ONE, 2]}, {"a": [ONE, 3]}, "the output['a'][1] is 3, and the reference's is 2"),
    ],
)
def test_the_first_difference_is_named(wanted, given, said):
    assert structural_difference(tree(wanted), tree(given)) == said


def test_a_long_value_is_cut():
    assert len(structural_difference(tree(1), tree("x" * 100_000))) < 200


def test_the_order_of_a_dictionary_is_kept_and_no_difference():
    value, tensors = {"b": torch.ones(1), "a": ONE}, []
    assert tree(value) == tree({"a": ONE, "b": torch.ones(1)})
    assert list(unflatten(flatten(value, tensors), tensors)) == ["b", "a"]


@given(TREES, TREES)
def test_a_difference_is_said_where_there_is_one(wanted, given):
    assert bool(structural_difference(tree(wanted), tree(given))) == (tree(wanted) != tree(given))


@given(TREES, ANYTHING)
def test_anything_can_be_compared(wanted, given):
    assert isinstance(structural_difference(tree(wanted), given), str)
