# SPDX-License-Identifier: Apache-2.0
"""What data/methods says of the bandits, on fewer steps: which losses run away on frozen data, and where they end."""

import functools
import math

import pytest
import torch

from benchmarks.methods.bandits import BANDITS, METHODS, State, climb, divergence, value

pytestmark = pytest.mark.exhaustive
NAMES = list(BANDITS)
HALF, STEPS = 2000, 4000


@functools.cache
def frozen(method: str) -> tuple[State, State]:
    half, whole = climb(METHODS[method], list(BANDITS.values()), [HALF, STEPS], rate=0.5)
    return half, whole


def spread(state: State, bandit: str) -> float:
    logits = state.logits[NAMES.index(bandit)]
    return float(logits.max() - logits.min())


def policy(state: State, bandit: str) -> torch.Tensor:
    return state.pi[NAMES.index(bandit)]


@pytest.mark.parametrize(("bandit", "arm"), [("rec", 1), ("second", 1), ("topr", 2)])
def test_naive_reinforce_runs_away_to_a_wrong_arm(bandit, arm):
    half, whole = frozen("naive")
    assert policy(whole, bandit)[arm] > 0.999
    assert value(BANDITS[bandit], policy(whole, bandit)) < max(BANDITS[bandit].rewards)
    # Twice the steps, twice the spread.
    assert spread(whole, bandit) / spread(half, bandit) == pytest.approx(2, rel=0.02)


@pytest.mark.parametrize("bandit", ["rec", "second"])
def test_topr_settles_at_a_mixture(bandit):
    half, whole = frozen("topr")
    assert torch.allclose(policy(half, bandit), policy(whole, bandit), atol=3e-3)
    assert spread(whole, bandit) - spread(half, bandit) < 2 * math.log(2)
    assert policy(whole, bandit).max() < 0.95


@pytest.mark.parametrize("bandit", ["topr", "topr_uniform"])
def test_topr_finds_the_good_arm_from_either_start(bandit):
    assert policy(frozen("topr")[1], bandit)[0] > 0.99
    assert spread(frozen("topr")[1], bandit) < 20 < spread(frozen("naive")[1], bandit)


def test_naive_reinforce_finds_the_arm_from_a_uniform_start():
    assert policy(frozen("naive")[1], "topr_uniform")[0] > 0.999


@pytest.mark.parametrize("bandit", ["rec", "second"])
@pytest.mark.parametrize(("method", "eps_high"), [("rec_one_side .2 .2", 0.2), ("rec_one_side .6 2.0", 2.0)])
def test_rec_gains_within_the_divergence_of_eps(bandit, method, eps_high):
    after = policy(frozen(method)[1], bandit)
    assert value(BANDITS[bandit], after) > value(BANDITS[bandit], torch.tensor(BANDITS[bandit].mu))
    # KL(pi || mu) <= log of the largest ratio, which ends a step beyond 1 + eps_high at most.
    assert 0 < divergence(BANDITS[bandit], after) <= math.log(1 + eps_high + 0.05)


@pytest.mark.parametrize("bandit", ["rec", "second"])
def test_rec_with_a_narrow_clip_stops(bandit):
    half, whole = frozen("rec_one_side .2 .2")
    assert torch.equal(half.logits[NAMES.index(bandit)], whole.logits[NAMES.index(bandit)])


@pytest.mark.parametrize(("bandit", "arm"), [("rec", 2), ("second", 0)])
def test_only_importance_sampling_wins_on_frozen_data(bandit, arm):
    found = {method: policy(frozen(method)[1], bandit)[arm].item() for method in METHODS}
    assert found.pop("is") > 0.99
    assert max(found.values()) < 0.5


@pytest.mark.parametrize("method", ["naive", "topr", "rec_one_side .2 .2"])
def test_with_data_redrawn_they_find_it_too(method):
    # The script's data age in a fifth of its steps, each five times as long.
    (after,) = climb(METHODS[method], [BANDITS["rec"], BANDITS["second"]], [STEPS], rate=1.0, redraw=4)
    assert after.pi[0, 2] > 0.99
    assert after.pi[1, 0] > 0.99
