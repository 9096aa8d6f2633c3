# SPDX-License-Identifier: Apache-2.0
"""Losses in half precision, with infinities and NaN outside the mask, and beyond the clip."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.loss.cases import AGGREGATIONS, OURS, SEEDS, Batch, call, random_batch
from tests.tiers import one_of_each
from verl_kernel.loss.options import TurnCorrectionOptions
from verl_kernel.loss.turn_corrected import judge

HALVES = [torch.float16, torch.bfloat16]
LOSSES = [*OURS, "turn_corrected"]
TOKEN_CLIPS = ["rec_one_side_is", "rec_one_side_no_is", "rec_two_side_is", "rec_two_side_no_is", "rec_ring"]


def tensors_of(batch: Batch, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, ...]:
    ones = torch.ones_like(batch.log_prob)
    return tuple(one.to(dtype) for one in (batch.log_prob, batch.log_prob - batch.log_ratio, batch.advantages, ones))


@pytest.mark.slow
@pytest.mark.parametrize("mode", LOSSES)
@settings(max_examples=20)
@given(
    seed=SEEDS,
    values=st.lists(st.sampled_from([math.nan, math.inf, -math.inf, 100.0]), min_size=4, max_size=4),
    agg=st.sampled_from(AGGREGATIONS),
)
def test_what_stands_outside_the_mask_changes_nothing(mode, seed, values, agg):
    batch = random_batch(seed)
    clean = tensors_of(batch)
    odd = tuple(torch.where(batch.mask, one, value) for one, value in zip(clean, values, strict=True))
    expected, found = call(mode, clean, batch.mask, agg), call(mode, odd, batch.mask, agg)
    assert torch.equal(found[0], expected[0])
    assert found[0].isfinite()
    assert torch.equal(found[1], expected[1])
    assert not found[1][~batch.mask].any()
    assert found[2] == expected[2]


@pytest.mark.slow
@pytest.mark.parametrize("mode", LOSSES)
@settings(max_examples=20)
@given(
    seed=SEEDS, dtype=st.sampled_from(HALVES), spread=st.sampled_from([0.5, 5.0, 30.0]),
    agg=st.sampled_from(AGGREGATIONS),
)  # fmt: skip
def test_half_precision_is_as_good_as_its_inputs(mode, seed, dtype, spread, agg):
    batch = random_batch(seed, spread=spread)
    halves = tensors_of(batch, dtype)
    loss, gradient, _ = call(mode, halves, batch.mask, agg)
    expected, whole, _ = call(mode, tuple(one.float() for one in halves), batch.mask, agg)
    assert loss.isfinite()
    assert torch.equal(loss.float(), expected)
    # The gradient is handed back in the type of log pi: only numbers beyond its range are infinite there.
    assert gradient.dtype is dtype
    assert torch.equal(gradient, whole.to(dtype))
    assert not gradient.isnan().any()


@pytest.mark.parametrize(
    "case",
    one_of_each([(mode, dtype) for dtype in [*HALVES, torch.float32] for mode in TOKEN_CLIPS], key=lambda one: one[0]),
)
def test_a_clipped_token_has_no_say_however_far_it_went(case):
    mode, dtype = case
    log_prob = torch.tensor([[-1.0, -math.inf, -1.0], [-1.0, -1.0, -1.0]], dtype=dtype)
    old = torch.tensor([[-1.0, -2.0, -1.0], [-1.0, -14.0, -1.0]], dtype=dtype)
    advantages = torch.tensor([[-1.0], [1.0]], dtype=dtype).expand(2, 3)
    tensors = (log_prob, old, advantages, torch.ones(2, 3, dtype=dtype))
    loss, gradient, metrics = call(mode, tensors, torch.ones(2, 3).bool())
    assert metrics["rec/clipped"] == 2
    assert loss.item() == pytest.approx(0)
    assert not gradient[:, 1].any()
    assert gradient[:, [0, 2]].isfinite().all()
    assert gradient[:, [0, 2]].all()


@pytest.mark.parametrize("weights", ["none", "token", "geometric", "product"])
@pytest.mark.parametrize("odd", [math.inf, math.nan])
def test_a_turn_without_a_ratio_is_rejected(weights, odd):
    ratios, mask = torch.tensor([[1.0, odd, 0.0, 1.0]]), torch.tensor([[1, 1, 0, 1]]).bool()
    found = judge(ratios, mask, TurnCorrectionOptions(low=0.9, high=1.1, weights=weights))
    assert found.is_kept.tolist() == [False, True]
    assert found.weights.tolist() == [[0.0, 0.0, 0.0, 1.0]]
