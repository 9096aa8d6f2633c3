# SPDX-License-Identifier: Apache-2.0
"""Which forwards return what they were given."""

import pytest
import torch

from verl_kernel.env.reference.moved_values import MovedValues


def filled(x, y, i, factor=1):
    out = torch.full_like(x, -1.0)
    out[i[:4]] = x[i[4:]] * factor if factor != 1 else x[i[4:]]
    return out


MOVING = {
    "places are computed": lambda x, y, i: x[(i * 3 + 1) % 8],
    "the choice is computed": lambda x, y, i: torch.where(x > y.mean(), x, y),
    "into constants": filled,
    "joined and turned": lambda x, y, i: torch.cat([x, y[i]]).t().contiguous(),
}
OTHER = {
    "sums": lambda x, y, i: x.sum(0),
    "larger ones": lambda x, y, i: torch.maximum(x, y),
    "places": lambda x, y, i: (i * 3 + 1) % 8,
    "constants by choice": lambda x, y, i: torch.where(x > 0, torch.ones_like(x), torch.zeros_like(x)),
    "computed before it is moved": lambda x, y, i: filled(x, y, i, factor=2),
    "computed in place": lambda x, y, i: x.clone().mul_(2)[i],
    "through a sparse tensor": lambda x, y, i: x[i].to_sparse().to_dense(),
    "one of two outputs": lambda x, y, i: torch.cat([x[i], y * 2]),
    "an input as it was": lambda x, y, i: torch.where(x.isnan(), 0.0, x),
}


@pytest.mark.parametrize("name", [*MOVING, *OTHER])
def test_outputs_of_given_values(name):
    torch.manual_seed(0)
    given = [torch.randn(8, 8), torch.randn(8, 8), torch.randperm(8).flip(0)]
    inputs = [tensor.clone() for tensor in given]
    with (moved := MovedValues(inputs)):
        output = {**MOVING, **OTHER}[name](*inputs)
    assert moved.include([output], given) == (name in MOVING)
