# SPDX-License-Identifier: Apache-2.0
"""`topr_taper` against verl's own losses, against its formula row by row, and against the objective it climbs."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.loss.cases import Batch, assert_same, constant_rows, evaluate, random_batch
from tests.loss.test_turn_ratios import segments
from verl_kernel.errors import ConfigError
from verl_kernel.loss.options import ToprOptions
from verl_kernel.loss.topr import topr_taper, topr_weights

SEEDS = st.integers(0, 10**6)
LEVELS = ["geometric", "sequence", "token", "turn"]


def drifted(log_ratio: float, sign: int) -> Batch:
    """Rows of one token: every level has the same ratio."""
    batch = random_batch(rows=4, width=1)
    return replace(
        batch, log_ratio=torch.full_like(batch.log_ratio, log_ratio), advantages=sign * batch.advantages.abs()
    )


def naive_alpha(batch: Batch, options: ToprOptions) -> torch.Tensor:
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
    ratio=st.sampled_from(LEVELS),
    sign=st.sampled_from(["token", "turn"]),
    limits=st.sampled_from(
        [{}, {"neg_low": 0.3, "neg_high": 1.5}, {"pos_low": 0.5, "pos_high": 2.0, "pos_weight": 3.0}]
    ),
)
def test_weights_are_those_of_the_formula(seed: int, ratio: str, sign: str, limits: dict[str, float]) -> None:
    batch, options = random_batch(seed, rows=3), ToprOptions(ratio=ratio, sign=sign, **limits)
    found = topr_weights(batch.log_ratio, batch.advantages, batch.mask, options).alpha
    assert_same(torch.where(batch.mask, found, 0), naive_alpha(batch, options))


@given(seed=SEEDS)
def test_the_ratio_is_that_of_the_whole_answer_by_default(seed: int) -> None:
    batch = random_batch(seed)
    rho = torch.where(batch.mask, batch.log_ratio, 0).sum(1, keepdim=True).exp()
    alpha = torch.where(batch.advantages < 0, rho.clamp_max(1), 1)
    assert_same(evaluate("topr_taper", batch)[1], alpha * evaluate("gpg", batch)[1])


@pytest.mark.parametrize("ratio", LEVELS)
def test_on_policy_it_is_reinforce(ratio: str) -> None:
    batch = random_batch(spread=0.0)
    ours, expected = evaluate("topr_taper", batch, topr={"ratio": ratio}), evaluate("gpg", batch)
    assert_same(ours[0], expected[0])
    assert_same(ours[1], expected[1])
    assert ours[2]["topr/negative_weight"] == ours[2]["topr/negative"] > 0


@pytest.mark.parametrize("ratio", LEVELS)
@pytest.mark.parametrize("drift", [-3.0, -1.0, 0.5, 2.0])
def test_good_answers_count_whole_whatever_their_ratio(ratio: str, drift: float) -> None:
    batch = drifted(drift, 1)
    assert_same(evaluate("topr_taper", batch, topr={"ratio": ratio})[1], evaluate("gpg", batch)[1])


@pytest.mark.parametrize("ratio", LEVELS)
@pytest.mark.parametrize(("drift", "alpha"), [(-1.0, math.exp(-1)), (2.0, 1.0)])
def test_bad_answers_count_by_their_ratio_up_to_one(ratio: str, drift: float, alpha: float) -> None:
    batch = drifted(drift, -1)
    assert_same(evaluate("topr_taper", batch, topr={"ratio": ratio})[1], alpha * evaluate("gpg", batch)[1])


def test_bad_answers_teach_a_little_where_ppo_has_stopped() -> None:
    batch = drifted(-5.0, -1)
    assert not evaluate("vanilla", batch)[1].any()
    assert_same(evaluate("topr_taper", batch)[1], math.exp(-5) * evaluate("gpg", batch)[1])


def test_weights_carry_no_gradient() -> None:
    batch = random_batch()
    alpha = topr_weights(batch.log_ratio, batch.advantages, batch.mask, ToprOptions()).alpha
    expected = -alpha * batch.advantages * batch.mask / batch.mask.sum()
    assert_same(evaluate("topr_taper", batch)[1], expected)


@given(seed=SEEDS)
def test_by_tokens_it_is_gpg_on_good_ones_and_cispo_on_bad_ones(seed: int) -> None:
    batch = random_batch(seed)
    good = replace(batch, advantages=batch.advantages.clamp_min(0))
    bad = replace(batch, advantages=batch.advantages.clamp_max(0))
    loss, gradient, _ = evaluate("topr_taper", batch, topr={"ratio": "token"})
    parts = evaluate("gpg", good), evaluate("cispo", bad, clip=(1.0, 0.0))
    assert_same(loss, parts[0][0] + parts[1][0])
    assert_same(gradient, parts[0][1] + parts[1][1])


@given(seed=SEEDS)
def test_other_limits_give_known_methods(seed: int) -> None:
    batch = random_batch(seed)
    assert_same(evaluate("topr_taper", batch, topr={"neg_low": 1.0})[1], evaluate("gpg", batch)[1])
    truncated = evaluate("topr_taper", batch, topr={"ratio": "token", "pos_low": 0.0})[1]
    assert_same(truncated, evaluate("cispo", batch, clip=(1.0, 0.0))[1])
    good = replace(batch, advantages=batch.advantages.clamp_min(0))
    assert_same(evaluate("topr_taper", batch, topr={"neg_weight": 0.0})[1], evaluate("gpg", good)[1])


@given(mu=st.lists(st.floats(0.05, 1), min_size=3, max_size=5), seed=SEEDS)
def test_its_gradient_climbs_a_bounded_objective(mu: list[float], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    behaviour = torch.tensor(mu, dtype=torch.float64) / sum(mu)
    rewards = torch.randn(len(mu), generator=generator, dtype=torch.float64)
    logits = torch.randn(len(mu), generator=generator, dtype=torch.float64, requires_grad=True)
    log_pi = logits.log_softmax(0)
    rho = (log_pi - behaviour.log()).exp()
    bounded = torch.where(rho <= 1, rho, 1 + rho.clamp_min(1).log())
    objective = (behaviour * rewards * torch.where(rewards >= 0, log_pi, bounded)).sum()
    (expected,) = torch.autograd.grad(objective, logits, retain_graph=True)
    loss, _ = topr_taper(
        old_log_prob=behaviour.log()[:, None],
        log_prob=log_pi[:, None],
        advantages=rewards[:, None],
        response_mask=torch.ones(len(mu), 1),
        loss_agg_mode="token-sum",
        config=SimpleNamespace(policy_loss={}, global_batch_info={}),
        rollout_is_weights=behaviour[:, None],
    )
    (found,) = torch.autograd.grad(loss, logits)
    assert_same(-found, expected)


def test_the_sign_of_a_turn_is_that_of_its_mean_advantage() -> None:
    mask = torch.tensor([[1, 1, 1, 0, 1, 1]]).bool()
    advantages = torch.tensor([[1.0, 1.0, -5.0, 9.0, 2.0, -1.0]], dtype=torch.float64)
    batch = Batch(torch.full_like(advantages, -1.0), torch.full_like(advantages, -2.0), advantages, mask)
    gradient = evaluate("topr_taper", batch, topr={"sign": "turn", "ratio": "turn"})[1]
    alpha = math.exp(-2)
    weights = torch.tensor([[alpha, alpha, alpha, 0, 1, 1]], dtype=torch.float64)
    assert_same(gradient, -weights * advantages / mask.sum())


def test_turns_of_a_row_may_have_opposite_signs() -> None:
    batch = random_batch()
    flipped = replace(constant_rows(batch), advantages=constant_rows(batch).advantages.abs())
    flipped.advantages[0, 1:] *= -1
    flipped.mask[0] = torch.tensor([1, 0, 1, 1, 1, 1, 1, 1, 1]).bool()
    log_ratio = torch.full_like(batch.log_ratio, -2.0)
    gradient = evaluate("topr_taper", replace(flipped, log_ratio=log_ratio), topr={"ratio": "turn"})[1]
    plain = evaluate("gpg", flipped)[1]
    assert_same(gradient[0, 0], plain[0, 0])
    assert_same(gradient[0, 2:], math.exp(-2) * plain[0, 2:])


def test_metrics_are_sums_over_tokens() -> None:
    logs = torch.tensor([[math.log(0.5), math.log(0.5), 9.0], [math.log(3.0), 9.0, 9.0]], dtype=torch.float64)
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]]).bool()
    batch = Batch(torch.full_like(logs, -1.0), logs, torch.full_like(logs, -1.0), mask)
    metrics = evaluate("topr_taper", batch, topr={"ratio": "geometric"})[2]
    expected = {
        "tokens": 3,
        "negative": 3,
        "negative_weight": 0.5 + 0.5 + 1,
        "negative_cut": 1,
        "log_ratio": math.log(0.75),
    }
    assert metrics == {f"topr/{name}": pytest.approx(value) for name, value in expected.items()}


@pytest.mark.parametrize(
    ("node", "key", "remedy"),
    [
        ({"ratio": "row"}, "ratio", "one of sequence, geometric, token, turn"),
        ({"sign": "row"}, "sign", "one of token, turn"),
        ({"neg_low": 2.0}, "neg_low", "neg_high"),
        ({"pos_high": 0.5}, "pos_low", "pos_high"),
        ({"neg_weight": -1.0}, "neg_weight", "at least 0"),
        ({"low": 1.0}, "low", "known keys are ratio"),
    ],
)
def test_bad_options_are_refused(node: dict[str, object], key: str, remedy: str) -> None:
    with pytest.raises(ConfigError) as error:
        ToprOptions.from_node(node)
    assert f"{ToprOptions.NODE}.{key}" in str(error.value)
    assert remedy in str(error.value)
    assert "\n" not in str(error.value)
