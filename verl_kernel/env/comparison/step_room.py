# SPDX-License-Identifier: Apache-2.0
"""How far from the expected output a program may be because a last digit decides it, element by element.

Where a reference rounds to few bits, compares or chooses, two correct programs differ in the elements that lie next to
a step. The reference is run again on inputs whose last digits differ: an element may have any value between those that
it takes then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from verl_kernel.env.comparison.tf32_room import Room, real

RUNS = 12
"""Of an element that each of two sides has half of the time, one in two thousand shows the one side only."""


def step_rooms(
    expected: Sequence[torch.Tensor], outputs: Iterable[Sequence[torch.Tensor] | None]
) -> list[Room | None] | None:
    """The room of each output; None where the reference fails on such inputs, or its outputs have another form.

    Args:
        expected: the reference's outputs.
        outputs: those on inputs with other last digits; None where it fails.
    """
    whole = [real(tensor).double() for tensor in expected]
    below, above = ([torch.zeros_like(tensor) for tensor in whole] for _ in range(2))
    for moved in outputs:
        if moved is None or [tensor.shape for tensor in moved] != [tensor.shape for tensor in expected]:
            return None
        for number, tensor in enumerate(moved):
            way = (real(tensor).double() - whole[number]).nan_to_num_(0.0, 0.0, 0.0)
            torch.maximum(above[number], way, out=above[number])
            torch.maximum(below[number], way.neg_(), out=below[number])
    return [Room(*pair) for pair in zip(below, above, strict=True)]
