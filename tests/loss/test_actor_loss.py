# SPDX-License-Identifier: Apache-2.0
"""Every loss of ours within verl's actor loss: micro-batches, aggregation, and weights of the rollout correction."""

from dataclasses import replace

import pytest
import torch

from tests.loss.cases import OURS, assert_same, evaluate, random_batch
from tests.loss.test_denominator import MASKS, PROMPT, gradients, nested, recipe  # noqa: F401  a fixture

RATIOS = [torch.linspace(0.4, 1.9, len(mask)).roll(row) for row, mask in enumerate(MASKS)]
CUTS = [
    {"use_dynamic_bsz": False, "micro_batch_size_per_gpu": 2},
    {"use_dynamic_bsz": False, "micro_batch_size_per_gpu": 8},
    {"use_dynamic_bsz": True, "max_token_len_per_gpu": 16},
]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["vanilla", *OURS])
def test_the_gradient_is_the_same_however_micro_batches_are_cut(recipe, mode):  # noqa: F811
    config = recipe.copy()
    # By its name alone: the node is still of verl's own class.
    config.actor_rollout_ref.actor.policy_loss.loss_mode = mode
    loss, expected = gradients(config, ratio=RATIOS)
    assert any(grad.any() for grad in expected)
    for cut in CUTS:
        other, found = gradients(config, ratio=RATIOS, **cut)
        assert other == pytest.approx(loss, rel=1e-5)
        for one, two in zip(expected, found, strict=True):
            torch.testing.assert_close(one, two)


@pytest.mark.parametrize("mode", OURS)
def test_correction_weights_multiply_every_tokens_loss(mode):
    batch = random_batch()
    weights = torch.linspace(0.1, 2, batch.mask.numel(), dtype=torch.float64).view(batch.mask.shape)
    assert_same(evaluate(mode, batch, weights=weights)[1], weights * evaluate(mode, batch)[1])


@pytest.mark.parametrize("mode", OURS)
def test_it_sums_up_as_verl_does(mode):
    # Per row, the gradient of another aggregation is that of token-sum times one number.
    batch = random_batch()
    plain = evaluate(mode, batch, "token-sum")[1]
    length = batch.mask.sum(dim=1, keepdim=True)
    rows, width = batch.mask.shape
    divisors = {
        "token-mean": length.sum(), "seq-mean-token-mean": length * rows, "seq-mean-token-sum": rows,
        "seq-mean-token-sum-norm": rows * width,
    }  # fmt: skip
    for agg, divisor in divisors.items():
        assert_same(evaluate(mode, batch, agg)[1], plain / divisor)


@pytest.mark.parametrize("mode", OURS)
def test_a_batch_without_tokens_has_loss_zero(mode):
    batch = random_batch()
    empty = replace(batch, mask=torch.zeros_like(batch.mask))
    loss, gradient, metrics = evaluate(mode, empty, "token-sum")
    assert loss == 0
    assert not gradient.any()
    assert set(metrics) == set(evaluate(mode, batch)[2])
    assert not any(metrics.values())
