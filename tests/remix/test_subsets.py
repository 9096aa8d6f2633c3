# SPDX-License-Identifier: Apache-2.0
"""Ordered subsets against every possible one, and against the definition written with plain loops."""

from itertools import permutations
from math import exp, log

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from verl_kernel.remix.layers import draw, log_probability, membership, top

CHI_SQUARE_999_DF_11 = 31.264
"""A right sampler stays below it in 999 of 1000 seeds; the seed is fixed."""


def naive(logits: list[float], order: tuple[int, ...]) -> float:
    """Sum over j of log q_j - log(1 - the q of those drawn before j)."""
    weights = [exp(logit) for logit in logits]
    q = [weight / sum(weights) for weight in weights]
    return sum(log(q[i]) - log(1 - sum(q[before] for before in order[:j])) for j, i in enumerate(order))


@given(st.lists(st.floats(-3, 3), min_size=2, max_size=6), st.data())
def test_log_probability_is_the_paper_s_sum(logits: list[float], data: st.DataObject):
    size = data.draw(st.integers(1, len(logits) - 1))
    order = tuple(data.draw(st.permutations(range(len(logits))))[:size])
    found = log_probability(torch.tensor(logits, dtype=torch.float64), torch.tensor(order))
    assert found.item() == pytest.approx(naive(logits, order), abs=1e-9)


@pytest.mark.parametrize(("count", "size"), [(4, 1), (4, 2), (5, 3), (4, 4)])
def test_probabilities_of_all_ordered_subsets_sum_to_one(count: int, size: int):
    logits = torch.randn(count, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    orders = torch.tensor(list(permutations(range(count), size)))
    total = log_probability(logits.expand(len(orders), -1), orders).exp().sum()
    assert total.item() == pytest.approx(1, abs=1e-12)


def test_drawn_frequencies_are_those_of_the_probabilities():
    logits, draws = torch.tensor([1.0, 0.0, -0.5, 0.7]), 50_000
    orders = list(permutations(range(4), 2))
    drawn = draw(logits.expand(draws, -1), 2, torch.Generator().manual_seed(3))
    counts = torch.tensor([(drawn == torch.tensor(order)).all(1).sum() for order in orders])
    expected = draws * log_probability(logits.double().expand(len(orders), -1), torch.tensor(orders)).exp()
    assert counts.sum() == draws
    assert ((counts - expected) ** 2 / expected).sum().item() < CHI_SQUARE_999_DF_11


def test_drawing_again_from_the_first_softmax_is_noticed():
    logits, draws = torch.tensor([1.0, 0.0, -0.5, 0.7]), 50_000
    q = logits.double().softmax(0)
    orders = list(permutations(range(4), 2))
    # Pairs of independent draws, of which those with two equal numbers are thrown away.
    joint = torch.stack([q[i] * q[j] for i, j in orders])
    wrong = draws * joint / joint.sum()
    right = draws * log_probability(logits.double().expand(len(orders), -1), torch.tensor(orders)).exp()
    assert ((wrong - right) ** 2 / right).sum().item() > 10 * CHI_SQUARE_999_DF_11


def test_top_is_in_order_and_takes_the_first_of_equals():
    assert top(torch.tensor([[0.0, 2.0, 1.0], [1.0, 1.0, 1.0]]), 2).tolist() == [[1, 2], [0, 1]]


def test_membership_marks_the_subset():
    assert membership(torch.tensor([[2, 0]]), 4).tolist() == [[True, False, True, False]]
