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
    "empty_like": lambda: torch.empty_like(torch.ones(2)),
    "empty_strided": lambda: torch.empty_strided((2, 2), (4, 1)),
    "no elements": lambda: torch.empty((2, 0)),
}


@pytest.mark.parametrize("name", GROWN)
def test_fresh_memory_is_poisoned(name):
    with PoisonedAllocations():
        found = GROWN[name]()
    assert torch.isnan(found).sum() >= found.numel() - 1 - found.numel() // 61


def test_poison_has_numbers_in_some_places_of_each_row():
    """So that a program is wrong that leaves an answer of NaN to the poison."""
    seen = torch.zeros(8, 61, dtype=torch.bool)
    with PoisonedAllocations():
        for _ in range(61):
            seen |= ~torch.empty(8, 61).isnan()
            assert (~torch.empty(100, 64).isnan()).any(1).sum() > 90
    assert seen.all()


def test_what_is_written_holds_its_numbers():
    with PoisonedAllocations():
        assert (torch.zeros(3) + 1).tolist() == [1.0] * 3
        assert torch.empty(3, dtype=torch.int32).fill_(0).tolist() == [0] * 3


def test_what_a_resized_tensor_held_stays():
    with PoisonedAllocations():
        grown, smaller = torch.ones(2).resize_(6), torch.ones(6).resize_(2)
    assert grown[:2].eq(1.0).all()
    assert grown[2:].isnan().all()
    assert smaller.eq(1.0).all()
