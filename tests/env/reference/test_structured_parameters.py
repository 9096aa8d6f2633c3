# SPDX-License-Identifier: Apache-2.0
"""Parameters that start with a structure are found, by what models of several seeds have in common."""

import copy

import pytest
import torch
from torch import nn

from verl_kernel.env.reference.structured_parameters import disturbed, find_structured, keep_padding


class Model(nn.Module):
    def __init__(self, **members):
        super().__init__()
        for name, member in members.items():
            setattr(self, name, member)


def twins():
    layer = nn.Linear(6, 6)
    return Model(one=layer, other=copy.deepcopy(layer))


def tied():
    layer = nn.Linear(6, 6)
    return Model(one=layer, other=layer)


def parameter(make):
    return lambda: Model(w=nn.Parameter(make()), plain=nn.Linear(4, 4))


STRUCTURED = {
    "identity": (parameter(lambda: torch.eye(8)), {"w"}),
    "noisy identity": (parameter(lambda: torch.eye(8) + 0.01 * torch.randn(8, 8)), set()),
    "orthogonal": (parameter(lambda: nn.init.orthogonal_(torch.empty(8, 12))), {"w"}),
    "orthogonal columns": (parameter(lambda: nn.init.orthogonal_(torch.empty(4, 3, 2, 2), 2.0)), {"w"}),
    "few rows": (parameter(lambda: torch.randn(1, 64)), set()),
    "triangle": (parameter(lambda: torch.randn(8, 8).tril()), {"w"}),
    "repeated rows": (parameter(lambda: torch.randn(1, 8).repeat(4, 1)), {"w"}),
    "symmetric": (parameter(lambda: (lambda x: x + x.mT)(torch.randn(8, 8))), {"w"}),
    "a ladder": (parameter(lambda: torch.arange(1.0, 9.0)), {"w"}),
    "twins": (twins, {"one.weight", "one.bias", "other.weight", "other.bias"}),
    "tied": (tied, set()),
    "constants": (lambda: nn.LayerNorm(8), set()),
    "a layer": (lambda: nn.Conv2d(3, 8, 3), set()),
    "an embedding with a row of padding": (lambda: nn.Embedding(9, 6, padding_idx=0), {"weight"}),
    "attention": (lambda: nn.MultiheadAttention(16, 4), set()),
}


@pytest.mark.parametrize("name", STRUCTURED)
def test_only_what_no_training_would_keep_is_found(name):
    (make, wanted), starts = STRUCTURED[name], []
    for seed in range(3):
        torch.manual_seed(seed)
        starts.append(dict(make().named_parameters()))
    assert set(find_structured(starts)) == wanted


def test_noise_is_half_of_the_size_everywhere():
    before = torch.eye(64)
    after = disturbed(before, torch.Generator().manual_seed(1))
    assert (after != before).all()
    assert 0.4 / 8 < (after - before).square().mean().sqrt() < 0.6 / 8


def test_noise_leaves_a_row_of_padding_as_it_is():
    model = nn.Sequential(nn.Embedding(9, 6, padding_idx=2))
    before = {"0.weight": model[0].weight.detach()}
    values = {"0.weight": disturbed(before["0.weight"], torch.Generator().manual_seed(0))}
    keep_padding(model, before, values)
    assert [number for number in range(9) if torch.equal(values["0.weight"][number], before["0.weight"][number])] == [2]
