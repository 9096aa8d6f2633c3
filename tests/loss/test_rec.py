# SPDX-License-Identifier: Apache-2.0
"""The REC family against verl's own losses, against hand-made tables, and against its formula."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.loss.cases import SEEDS, Batch, actor, assert_same, evaluate, random_batch
from tests.sentences import refused
from verl_kernel.errors import ConfigError
from verl_kernel.loss.options import MODE, PRESETS, RecLossOptions, options_of
from verl_kernel.loss.rec import with_eps

RATIOS = [0.3, 0.5, 0.9, 1.0, 1.1, 1.9, 3.5]
# Whether a token stays, by its ratio, for a positive and for a negative advantage; eps 0.2, 0.2, eps' 0.6, 2.0.
STAYS = {
    "none": ("1111111", "1111111"), "one_side": ("1111100", "0011111"), "two_side": ("0011100", "0011100"),
    "ring": ("1011100", "0011101"), "sequence": ("1111100", "0011111"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "settings", "theirs", "their_settings", "agg"), [
    ("opmd_k2", {"rec": {"coef": 0.15}}, "dro", {"dro_beta": 0.3}, "token-mean"),
    ("rec_custom", {}, "gpg", {}, "token-mean"),
    ("rec_custom", {"rec": {"weights": "is"}}, "cispo", {"clip": (1.0, 1e9)}, "token-mean"),
    # These two have another value: theirs is without the logarithm.
    ("rec_one_side_is", {}, "vanilla", {"dual": 1e9}, "token-mean"),
    ("rec_gspo_is", {"rec": {"eps_low": 0.1, "eps_high": 0.2}}, "gspo", {"clip": (0.1, 0.2)}, "seq-mean-token-mean"),
])  # fmt: skip
@given(seed=SEEDS)
def test_it_has_the_gradient_of_verls_loss(mode, settings, theirs, their_settings, agg, seed):
    batch = random_batch(seed)
    ours, expected = evaluate(mode, batch, agg, **settings), evaluate(theirs, batch, agg, **their_settings)
    assert_same(ours[1], expected[1])
    if theirs not in ("vanilla", "gspo"):
        assert_same(ours[0], expected[0])


@given(seed=SEEDS, coef=st.floats(0, 2))
def test_asymre_is_a_baseline_lowered_by_its_coefficient(seed, coef):
    batch = random_batch(seed)
    ours = evaluate("asymre_kl", batch, rec={"coef": coef})
    expected = evaluate("gpg", replace(batch, advantages=batch.advantages + coef))
    assert_same(ours[0], expected[0])
    assert_same(ours[1], expected[1])


def test_an_answers_squared_log_ratio_grows_with_length():
    still = torch.zeros(1, 4, dtype=torch.float64)
    batch = Batch(still - 1, still + 0.1, still, still == 0)
    for mode, value, slope in (("opmd_k2", 0.1 * 4 * 0.1**2, 0.02), ("opmd_k2_sequence", 0.1 * 0.4**2, 0.08)):
        loss, gradient, _ = evaluate(mode, batch, "seq-mean-token-sum")
        assert loss.item() == pytest.approx(value)
        assert_same(gradient, torch.full_like(gradient, slope))


@pytest.mark.parametrize("agg", ["seq-mean-token-sum", "seq-mean-token-mean", "token-mean"])
@given(seed=SEEDS, tau=st.floats(0.01, 3))
def test_kimis_opmd_descends_its_optimality_condition(agg, seed, tau):
    # r - mean - tau log(pi / pi_old) of an answer is 0 at the optimum; the gradient of its square, over 2 tau.
    batch = random_batch(seed)
    batch = replace(batch, advantages=batch.advantages[:, :1].expand_as(batch.advantages))
    log_prob = batch.log_prob.clone().requires_grad_()
    drift = torch.where(batch.mask, log_prob - (batch.log_prob - batch.log_ratio), 0).sum(1)
    squares = (batch.advantages[:, 0] - tau * drift).square() / (2 * tau)
    lengths = batch.mask.sum(1)
    rows = {
        "seq-mean-token-sum": len(squares), "seq-mean-token-mean": len(squares) * lengths, "token-mean": sum(lengths),
    }  # fmt: skip
    (expected,) = torch.autograd.grad((squares / rows[agg]).sum(), log_prob)
    assert_same(evaluate("opmd_k2_sequence", batch, agg, rec={"coef": tau / 2})[1], expected)


@pytest.mark.parametrize("tau", [0.0, 1.0, 3.0])
def test_scaled_opmd_is_reinforce_over_one_plus_tau(tau):
    batch = random_batch()
    ours, expected = evaluate("opmd_scaled", batch, rec={"tau": tau}), evaluate("gpg", batch)
    assert_same(ours[0], expected[0] / (1 + tau))
    assert_same(ours[1], expected[1] / (1 + tau))


def test_red_weight_weighs_by_the_exponential_up_to_its_cap():
    batch, rec = random_batch(), {"temperature": 0.5, "cap": 3.0}
    weights = (batch.advantages / 0.5).exp()
    assert (weights > 3).any()
    assert (weights[batch.mask] < 3).any()
    _, gradient, metrics = evaluate("rec_red_weight", batch, rec=rec)
    assert_same(gradient, evaluate("gpg", batch)[1] * weights.clamp_max(3.0))
    assert metrics["rec/capped"] == (weights > 3)[batch.mask].sum()
    assert metrics["rec/weight"] == pytest.approx(weights.clamp_max(3.0)[batch.mask].sum().item())
    assert_same(evaluate("rec_red_weight", batch, rec={"temperature": 1e9})[1], evaluate("gpg", batch)[1])


@pytest.mark.parametrize(
    "mode",
    [mode for mode in PRESETS if mode.startswith("rec_") and "red" not in mode] + ["opmd_k2", "opmd_k2_sequence"],
)
def test_on_policy_it_is_reinforce(mode):
    batch = random_batch(spread=0.0)
    assert_same(evaluate(mode, batch)[1], evaluate("gpg", batch)[1])


@pytest.mark.parametrize("clip", STAYS)
@pytest.mark.parametrize("sign", [1, -1])
def test_what_stays_is_as_in_the_table(clip, sign):
    ratios = torch.tensor(RATIOS, dtype=torch.float64)[:, None]
    batch = Batch(torch.full_like(ratios, -1.0), ratios.log(), torch.full_like(ratios, sign), ratios > 0)
    _, gradient, metrics = evaluate("rec_custom", batch, rec={"clip": clip})
    expected = torch.tensor([int(one) for one in STAYS[clip][sign < 0]], dtype=torch.float64)
    assert_same(gradient[:, 0], -sign * expected / len(RATIOS))
    assert (metrics["rec/clipped"], metrics["rec/tokens"]) == ((expected == 0).sum(), len(RATIOS))


def test_the_sequence_clip_takes_rows_out_by_their_mean_ratio():
    # Tokens far up and far down in each row; the mean of the first is within, of the second far up.
    logs = torch.tensor([[0.9, -0.8, 50.0], [0.9, -0.3, 0.0]], dtype=torch.float64)
    batch = Batch(torch.full_like(logs, -1.0), logs, torch.ones_like(logs), torch.tensor([[1, 1, 0], [1, 1, 1]]) > 0)
    gradient = evaluate("rec_gspo_no_is", batch, rec={"eps_low": 0.1, "eps_high": 0.1})[1]
    assert (gradient[0] != 0).tolist() == [True, True, False]
    assert not gradient[1].any()


def test_a_clipped_token_keeps_its_regulariser():
    batch = random_batch()
    both = evaluate("rec_custom", batch, rec={"clip": "two_side", "regulariser": "k2", "coef": 0.3})[1]
    clipped = evaluate("rec_two_side_no_is", batch)[1]
    square = replace(batch, advantages=torch.zeros_like(batch.advantages))
    assert_same(both, clipped + evaluate("opmd_k2", square, rec={"coef": 0.3})[1])
    assert (clipped[batch.mask] == 0).any()
    assert (both[batch.mask] != 0).all()


def test_eps_is_the_nodes_or_the_presets_or_the_actors():
    config = actor("rec_ring", clip=(0.1, 0.3))
    assert (with_eps(RecLossOptions(), config).eps_low, with_eps(RecLossOptions(), config).eps_high) == (0.1, 0.3)
    assert with_eps(options_of("rec_gspo_is", {"eps_low": None}), config).eps_low == 3e-4
    assert with_eps(options_of("rec_gspo_is", {"eps_high": 0.5}), config).eps_high == 0.5
    far = random_batch(spread=3.0)
    wide = evaluate("rec_one_side_no_is", far, rec={"eps_low": 1.0, "eps_high": 1e12})[1]
    assert_same(wide, evaluate("gpg", far)[1])
    assert (evaluate("rec_one_side_no_is", far)[1] != wide).any()


def test_presets_are_what_the_paper_calls_them():
    one, two = options_of("rec_one_side_is", None), options_of("rec_two_side_no_is", {})
    assert (one.clip, one.weights, one.regulariser) == ("one_side", "is", "none")
    assert (two.clip, two.weights, two.regulariser) == ("two_side", "none", "none")
    ring = options_of("rec_ring", None)
    assert (ring.clip, ring.weights, ring.eps_low_prime, ring.eps_high_prime) == ("ring", "none", 0.6, 2.0)
    gspo = options_of("rec_gspo_is", None)
    assert (gspo.clip, gspo.weights, gspo.eps_low, gspo.eps_high) == ("sequence", "sequence_is", 3e-4, 4e-4)
    assert (options_of("asymre_kl", None).regulariser, options_of("asymre_kl", None).coef) == ("forward_kl", 0.1)
    assert (options_of("opmd_k2", None).regulariser, options_of("opmd_scaled", None).tau) == ("k2", 1.0)
    assert options_of("opmd_k2_sequence", None).regulariser == "k2_sequence"


@pytest.mark.parametrize(("mode", "node", "key", "remedy"), [
    ("rec_ring", {"clip": "none"}, "clip", "rec_custom"),
    ("asymre_kl", {"regulariser": "k2"}, "regulariser", "rec_custom"),
    ("rec_one_side_is", {"weights": "is"}, "weights", "remove the key"),
    ("rec_one_side_is", {"coef": 0.1}, "coef", "remove the key"),
    ("rec_one_side_no_is", {"eps_high_prime": 2.0}, "eps_high_prime", "remove the key"),
    ("asymre_kl", {"eps_low": 0.2}, "eps_low", "remove the key"),
    ("opmd_k2", {"tau": 0.2}, "tau", "remove the key"),
    ("rec_custom", {"clip": "both"}, "clip", "one of none, one_side, two_side, ring, sequence"),
    ("rec_custom", {"clop": "none"}, "clop", "known keys are clip, weights"),
    ("rec_custom", {"clip": "ring", "eps_low": 1.5}, "eps_low", "between 0 and 1"),
    ("rec_red_weight", {"temperature": 0.0}, "temperature", "above 0"),
    ("vanilla", None, MODE, "rec_custom"),
])  # fmt: skip
def test_options_that_contradict_or_do_nothing_are_refused(mode, node, key, remedy):
    with refused(key if key == MODE else f"{RecLossOptions.NODE}.{key}", remedy, by=ConfigError):
        options_of(mode, node)
