# SPDX-License-Identifier: Apache-2.0
"""Pairwise OPMD against its definition pair by pair, and the advantages that make REINFORCE of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.loss.cases import Batch, assert_same, random_batch
from verl_kernel.loss.pairwise import pairwise_advantages, pairwise_loss

INDEX = np.array(["b", "a", "b", "a", "b", "lone", "a", "b"], dtype=object)


def inputs(batch: Batch, log_prob: torch.Tensor, tau: float) -> tuple[object, ...]:
    return log_prob, batch.log_prob - batch.log_ratio, batch.advantages[:, 0], batch.mask, INDEX, tau


def naive(batch: Batch, tau: float) -> float:
    drift = [(row * mask).sum().item() for row, mask in zip(batch.log_ratio, batch.mask, strict=True)]
    values = [score.item() - tau * far for score, far in zip(batch.advantages[:, 0], drift, strict=True)]
    total = 0.0
    for prompt in set(INDEX):
        group = [value for value, name in zip(values, INDEX, strict=True) if name == prompt]
        pairs = [(one - two) ** 2 for place, one in enumerate(group) for two in group[place + 1 :]]
        total += sum(pairs) / len(group) ** 2
    return total / len(set(INDEX))


@given(seed=st.integers(0, 10**6), tau=st.floats(0.01, 3))
def test_it_is_the_sum_over_pairs_and_its_gradient_reinforce(seed: int, tau: float) -> None:
    batch = random_batch(seed)
    log_prob = batch.log_prob.clone().requires_grad_()
    loss = pairwise_loss(*inputs(batch, log_prob, tau))
    assert loss.item() == pytest.approx(naive(batch, tau), rel=1e-9)
    (gradient,) = torch.autograd.grad(loss, log_prob)
    advantages = pairwise_advantages(*inputs(batch, batch.log_prob, tau))
    sizes = torch.tensor([(name == INDEX).sum() for name in INDEX])
    expected = -2 * tau * advantages / sizes / len(set(INDEX))
    assert_same(gradient, expected[:, None] * batch.mask)


@given(seed=st.integers(0, 10**6))
def test_pairs_add_up_to_the_spread_around_the_mean(seed: int) -> None:
    # With one prompt of K answers, K^2 times the loss is K times the squared distances from the mean.
    batch, everyone = random_batch(seed), np.zeros(8)
    arguments = (*inputs(batch, batch.log_prob, 0.4)[:4], everyone, 0.4)
    advantages = pairwise_advantages(*arguments)
    assert_same(64 * pairwise_loss(*arguments), 8 * advantages.square().sum())


def test_at_the_old_policy_the_advantage_is_the_score_above_the_mean_and_a_lone_answer_has_none() -> None:
    batch = random_batch(spread=0.0)
    advantages, scores = pairwise_advantages(*inputs(batch, batch.log_prob, 0.7)), batch.advantages[:, 0]
    for name in ("a", "b", "lone"):
        group = torch.from_numpy(name == INDEX)
        assert_same(advantages[group], scores[group] - scores[group].mean())
    assert advantages[5] == 0


def test_tokens_outside_the_mask_have_no_say() -> None:
    batch = random_batch()
    far = torch.where(batch.mask, batch.log_prob, batch.log_prob + 100)
    assert not batch.mask.all()
    assert_same(pairwise_loss(*inputs(batch, far, 0.5)), pairwise_loss(*inputs(batch, batch.log_prob, 0.5)))
