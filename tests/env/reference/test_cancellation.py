# SPDX-License-Identifier: Apache-2.0
"""Outputs that hang on the last bit of what cancels, and outputs that do not."""

import pytest
import torch
import torch.nn.functional as F

from verl_kernel.env.reference.cancellation import rounded_apart


def scores(scale):
    return scale * torch.randn(64, 128, generator=torch.Generator().manual_seed(1))


def heads(scale):
    generator = torch.Generator().manual_seed(2)
    return [scale * torch.randn(2, 4, 96, 32, generator=generator) for _ in range(3)]


def by_hand(x):
    weights = (x - x.amax(-1, keepdim=True)).exp()
    return weights / weights.sum(-1, keepdim=True)


def gradient(x):
    weights, grown = F.softmax(x, -1), x.roll(1, -1)
    return weights * (grown - (grown * weights).sum(-1, keepdim=True))


FORMS = {
    "softmax": lambda scale: F.softmax(scores(scale), -1),
    "softmax by hand": lambda scale: by_hand(scores(scale)),
    "log_softmax": lambda scale: F.log_softmax(scores(scale), -1).exp(),
    "masked softmax": lambda scale: F.softmax(scores(scale).triu() + torch.full((64, 128), -torch.inf).tril(-1), -1),
    "attention": lambda scale: F.scaled_dot_product_attention(*heads(scale**0.5)) / scale**0.5,
    "gradient of softmax": lambda scale: gradient(scores(scale)),
}
STEADY = {
    "residual": lambda: scores(1e8) + F.relu(scores(1e8)),
    "centred rows": lambda: scores(1e8) - scores(1e8).mean(-1, keepdim=True),
    "where a row has its maximum": lambda: scores(1e8) == scores(1e8).amax(-1, keepdim=True),
    "integers": lambda: torch.arange(9) - torch.arange(9),
    "infinities": lambda: torch.tensor([-torch.inf, torch.inf]) + torch.zeros(2),
    "zeros": lambda: torch.zeros(9) + torch.zeros(9),
    "half precision": lambda: scores(1.0).half() - scores(1.0).half(),
}


def apart(make, *given):
    with rounded_apart():
        changed = make(*given)
    return changed, make(*given)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("scale", "are_kept"), [(1.0, True), (30.0, True), (1e9, False)])
def test_near_scores_keep_their_digits_and_far_ones_do_not(form, scale, are_kept):
    changed, plain = apart(FORMS[form], scale)
    assert torch.allclose(changed, plain, rtol=1e-2, atol=1e-2) is are_kept


@pytest.mark.parametrize("make", STEADY.values(), ids=STEADY)
def test_what_does_not_cancel_stays(make):
    changed, plain = apart(make)
    largest = float(plain.abs().max()) if plain.is_floating_point() else 0.0
    torch.testing.assert_close(changed, plain, rtol=0.0, atol=1e-6 * largest)


def test_a_number_moves_by_its_last_bit_at_most():
    x = torch.rand(10_000, generator=torch.Generator().manual_seed(3)) + 1
    changed, plain = apart(lambda: x + 0)
    assert set(((changed - plain) / 2**-23).unique().tolist()) == {-1.0, 0.0, 1.0}
