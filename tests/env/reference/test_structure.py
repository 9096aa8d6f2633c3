# SPDX-License-Identifier: Apache-2.0
"""What holds of an input in every draw holds of varied ones."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from verl_kernel.env.reference.kinds import KINDS
from verl_kernel.env.reference.structure import restored, structures_of
from verl_kernel.env.reference.variation import Variation, learn

SIZE = 12


def random(seed, *shape):
    return torch.randn(*(shape or (SIZE, SIZE)), generator=torch.Generator().manual_seed(seed))


def symmetric(seed):
    return random(seed) + random(seed).mT


def one_hot(seed):
    places = torch.randint(SIZE, (SIZE,), generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.one_hot(places, SIZE).float()


MADE = {
    "sorted": lambda seed: random(seed, 4, 50).sort(-1).values,
    "sorted vector": lambda seed: random(seed, 50).sort().values,
    "symmetric": symmetric,
    "triangular": lambda seed: random(seed).tril(),
    "diagonal": lambda seed: random(seed).diag().diag(),
    "distribution": lambda seed: random(seed).softmax(-1),
    "halves of a distribution": lambda seed: random(seed).softmax(-1).half(),
    "log distribution": lambda seed: random(seed).log_softmax(-1),
    "unit rows": lambda seed: torch.nn.functional.normalize(random(seed), dim=-1),
    "one-hot": one_hot,
    "one-hot integers": lambda seed: one_hot(seed).long(),
    "identity": lambda seed: torch.eye(SIZE),
}
HOLDS = {
    "sorted": lambda x: (x[..., 1:] >= x[..., :-1]).all(),
    "sorted vector": lambda x: (x[1:] >= x[:-1]).all(),
    "symmetric": lambda x: torch.equal(x, x.mT),
    "triangular": lambda x: (x.triu(1) == 0).all(),
    "diagonal": lambda x: torch.equal(x, x.diag().diag()),
    "distribution": lambda x: (x >= 0).all() and torch.allclose(x.sum(-1), torch.ones(()), atol=1e-5),
    "halves of a distribution": lambda x: (
        (x >= 0).all() and torch.allclose(x.float().sum(-1), torch.ones(()), atol=1e-2)
    ),
    "log distribution": lambda x: torch.allclose(x.exp().sum(-1), torch.ones(()), atol=1e-5),
    "unit rows": lambda x: torch.allclose(x.square().sum(-1), torch.ones(()), atol=1e-5),
    "one-hot": lambda x: ((x == 0) | (x == 1)).all() and (x.sum(-1) == 1).all(),
    "one-hot integers": lambda x: ((x == 0) | (x == 1)).all() and (x.sum(-1) == 1).all(),
    "identity": lambda x: ((x == 0) | (x == 1)).all() and (x.sum(-1) == 1).all(),
}


def learned(make):
    return learn([[make(seed)] for seed in (1, 2, 3)], lambda tensors: True)


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "drawn"])
def test_every_trial_keeps_it(name, kind):
    variation = learned(MADE[name])
    assert all(HOLDS[name](variation.apply([MADE[name](seed)], seed, kind)[0]) for seed in range(8))


@pytest.mark.parametrize("name", MADE)
def test_some_trial_differs_from_the_draw(name):
    variation, drawn = learned(MADE[name]), MADE[name](5)
    assert any(
        not torch.equal(variation.apply([drawn], seed, kind)[0], drawn) for seed in range(4) for kind in KINDS[1:]
    )


@pytest.mark.parametrize("name", MADE)
def test_it_is_found_in_every_draw_or_not_at_all(name):
    draws = [MADE[name](seed) for seed in (1, 2)]
    other = random(3, *draws[0].shape).to(draws[0].dtype)
    assert structures_of(draws)
    assert not structures_of([*draws, other])


@given(st.integers(0, 1000))
def test_random_numbers_have_no_structure(seed):
    assert structures_of([random(seed), random(seed + 1)]) == ()


@pytest.mark.parametrize(
    "made", [torch.zeros(4, 4), torch.ones(4, 4), torch.zeros(0, 3), torch.zeros(()), torch.ones(1, 1)]
)
def test_constants_have_none(made):
    assert structures_of([made, made]) == ()


def test_zeros_at_other_places_in_each_draw_are_none():
    assert structures_of([random(1).relu(), random(2).relu()]) == ()


def test_a_row_without_numbers_stays_as_it_was_drawn():
    drawn = random(1).softmax(-1)
    assert torch.equal(restored(["distribution"], drawn, torch.zeros_like(drawn)), drawn)


def test_structures_survive_a_file():
    variation = learned(MADE["triangular"])
    assert Variation.from_json(variation.to_json()) == variation
