# SPDX-License-Identifier: Apache-2.0
"""Memory that is allocated without values holds none, also what a tensor grows by."""

import pytest
import torch

from verl_kernel.env.devices.poison import PoisonedAllocations

GROWN = {
    "empty": lambda: torch.empty(1 << 20),
    "resize": lambda: torch.empty(0).resize_(1 << 20),
    "resize_as": lambda: torch.zeros(0).resize_as_(torch.ones(1 << 20)),
    "new_empty": lambda: torch.ones(1).new_empty(1 << 20),
}


@pytest.mark.parametrize("name", GROWN)
def test_fresh_memory_is_poisoned(name):
    with PoisonedAllocations():
        found = GROWN[name]()
    assert torch.isnan(found).all()


def test_what_a_resized_tensor_held_stays():
    with PoisonedAllocations():
        grown, smaller = torch.ones(2).resize_(6), torch.ones(6).resize_(2)
    assert grown[:2].eq(1.0).all()
    assert grown[2:].isnan().all()
    assert smaller.eq(1.0).all()
