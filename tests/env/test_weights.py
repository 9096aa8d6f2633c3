# SPDX-License-Identifier: Apache-2.0
"""Constant weights: which they are, what they become, and how models of other shapes get them."""

import pytest
import torch
from torch import nn

from verl_kernel.env.weights import find_constants, hand_over, renewed


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3, generator=torch.Generator().manual_seed(0)))
        self.bias, self.gain = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.ones(3))
        self.slope, self.drawn = nn.Parameter(torch.tensor(0.25)), nn.Parameter(torch.tensor(0.4967141))
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("limit", torch.tensor(2.0))
        self.register_buffer("blocked", torch.full((3,), -torch.inf))
        self.register_buffer("calls", torch.tensor(0))


def test_constants_are_what_one_value_fills():
    """Not what was drawn, not integers, not what is infinite, and of single numbers only parameters."""
    assert find_constants(Model()) == {
        "bias": (0.0, True), "gain": (1.0, True), "slope": (0.25, True), "mean": (0.0, False)
    }  # fmt: skip
    assert find_constants(lambda x: x) == {}


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("value", [0.0, 1.0, 1e-6, -2.0, 1e4, 0.02])
def test_renewed_values_differ_and_keep_sign_and_size(value, dtype):
    old = torch.full((64,), value, dtype=dtype)
    new = renewed(old, value, torch.Generator().manual_seed(1))
    assert new.dtype == dtype
    assert (new != old).all()
    assert new.unique().numel() > 50
    size = abs(value) if 0.01 <= abs(value) <= 100 else 1.0
    assert (new.abs() >= 0.49 * size).all()
    assert (new.abs() <= 1.51 * size).all()
    signs = set(new.sign().tolist())
    assert signs == ({-1.0, 1.0} if value == 0 else {1.0 if value > 0 else -1.0})


def norm(**members):
    module = nn.Module()
    for name, tensor in members.items():
        setattr(module, name, nn.Parameter(tensor.clone()))
    return module


MATRIX = torch.arange(6.0).view(3, 2)
REFERENCE = norm(matrix=MATRIX, gain=torch.ones(3), bias=torch.zeros(3))
CONSTANTS = find_constants(REFERENCE)
NEW = {"matrix": MATRIX, "gain": torch.tensor([2.0, 3.0, 4.0]), "bias": torch.tensor([5.0, 6.0, 7.0])}
ones, zeros = torch.ones(3), torch.zeros(3)
CANDIDATES = {
    "the same": (norm(matrix=MATRIX, gain=ones, bias=zeros), "copied", {"gain": "gain", "bias": "bias"}),
    "other names": (norm(m=MATRIX, g=ones, b=zeros), "matched", {"g": "gain", "b": "bias"}),
    "another order": (norm(b=zeros, m=MATRIX, g=ones), "matched", {"g": "gain", "b": "bias"}),
    "another start": (norm(m=MATRIX + 1, g=ones, b=zeros), "matched", {"g": "gain", "b": "bias", "m": None}),
    "more": (norm(matrix=MATRIX, gain=ones, bias=zeros, table=MATRIX.t()), "matched", {"gain": "gain", "bias": "bias"}),
    "left out": (norm(matrix=MATRIX, gain=ones), "matched", {"gain": "gain"}),
    "left out, other names": (norm(m=MATRIX, g=ones), "matched", {"g": "gain"}),
    "nothing but": (norm(), "matched", {}),
    "in one": (norm(matrix=MATRIX, both=torch.stack([ones, zeros])), "seeded", {"both": None}),
    "in another": (norm(matrix=MATRIX, folded=zeros + 1e-3), "seeded", {"folded": None}),
    "two of a kind": (norm(matrix=MATRIX, bias=zeros, g=ones, h=ones), "seeded", {"g": None, "h": None, "bias": None}),
}


@pytest.mark.parametrize("name", CANDIDATES)
def test_a_candidate_gets_them_where_it_has_them(name):
    model, how, places = CANDIDATES[name]
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    assert hand_over(model, NEW, CONSTANTS) == how
    for own, tensor in model.state_dict().items():
        source = places.get(own)
        assert torch.equal(tensor, before[own] if source is None else NEW[source]), own


def test_a_buffer_that_is_not_there_is_not_left_out():
    """It may be a constant by design, which a kernel may hold as a number."""
    reference = Model()
    state = {name: tensor + 1 for name, tensor in reference.state_dict().items()}
    candidate = Model()
    del candidate.mean
    assert hand_over(candidate, state, find_constants(reference)) == "seeded"
    assert hand_over(lambda x: x, {}, {}) == "copied"
