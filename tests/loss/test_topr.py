# SPDX-License-Identifier: Apache-2.0
"""`topr_taper` against its formula, segment by segment, and against verl's own losses."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.loss.cases import SEEDS, Batch, assert_same, evaluate, random_batch, segments
from verl_kernel.loss.options import ToprLossOptions
from verl_kernel.loss.topr import topr_weights


def naive_alpha(batch: Batch, options: ToprLossOptions) -> torch.Tensor:
    """Weights by the formula, segment by segment."""
    alpha = torch.zeros_like(batch.log_ratio)
    for row, mask in enumerate(batch.mask.int().tolist()):
        whole = [column for column, on in enumerate(mask) if on]
        for turn in segments(mask, "turn"):
            for column in turn:
                of = {"token": [column], "turn": turn}.get(options.ratio, whole)
                logs = [batch.log_ratio[row, c].item() for c in of]
                rho = math.exp(min(max(sum(logs) / (1 if options.ratio == "sequence" else len(of)), -20), 20))
                signs = [batch.advantages[row, c].item() for c in (turn if options.sign == "turn" else [column])]
                side = "neg" if sum(signs) < 0 else "pos"
                low, high, factor = (getattr(options, f"{side}_{name}") for name in ("low", "high", "weight"))
                alpha[row, column] = factor * min(max(rho, low), high)
    return alpha


@given(
    seed=SEEDS,
    ratio=st.sampled_from(["geometric", "sequence", "token", "turn"]),
    sign=st.sampled_from(["token", "turn"]),
    limits=st.sampled_from(
        [{}, {"neg_low": 0.3, "neg_high": 1.5, "neg_weight": 0.5}, {"pos_low": 0.5, "pos_high": 2.0, "pos_weight": 3.0}]
    ),
)
def test_weights_are_those_of_the_formula(seed, ratio, sign, limits):
    batch, options = random_batch(seed, rows=3), ToprLossOptions(ratio=ratio, sign=sign, **limits)
    found = topr_weights(batch.log_ratio, batch.advantages, batch.mask, options).alpha
    assert_same(torch.where(batch.mask, found, 0), naive_alpha(batch, options))


@given(seed=SEEDS)
def test_the_ratio_is_that_of_the_whole_answer_by_default(seed):
    batch = random_batch(seed)
    rho = torch.where(batch.mask, batch.log_ratio, 0).sum(1, keepdim=True).exp()
    alpha = torch.where(batch.advantages < 0, rho.clamp_max(1), 1)
    assert_same(evaluate("topr_taper", batch)[1], alpha * evaluate("gpg", batch)[1])


@given(seed=SEEDS)
def test_by_tokens_it_is_gpg_on_good_ones_and_cispo_on_bad_ones(seed):
    batch = random_batch(seed)
    good = replace(batch, advantages=batch.advantages.clamp_min(0))
    bad = replace(batch, advantages=batch.advantages.clamp_max(0))
    loss, gradient, _ = evaluate("topr_taper", batch, topr={"ratio": "token"})
    parts = evaluate("gpg", good), evaluate("cispo", bad, clip=(1.0, 0.0))
    assert_same(loss, parts[0][0] + parts[1][0])
    assert_same(gradient, parts[0][1] + parts[1][1])


def test_metrics_are_sums_over_tokens():
    logs = torch.tensor([[math.log(0.5), math.log(0.5), 9.0], [math.log(3.0), 9.0, 9.0]], dtype=torch.float64)
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]]).bool()
    batch = Batch(torch.full_like(logs, -1.0), logs, torch.full_like(logs, -1.0), mask)
    metrics = evaluate("topr_taper", batch, topr={"ratio": "geometric"})[2]
    expected = {
        "tokens": 3, "negative": 3, "negative_weight": 0.5 + 0.5 + 1, "negative_cut": 1, "log_ratio": math.log(0.75),
    }  # fmt: skip
    assert metrics == {f"topr/{name}": pytest.approx(value) for name, value in expected.items()}
