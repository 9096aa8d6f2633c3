# SPDX-License-Identifier: Apache-2.0
"""Poisons device memory: a program finds NaN (or -1) where it has not written, never an old result.

Where the right answer is NaN, a program that does not write it would be right. So one floating element in `_EVERY`
holds a number, at places that change from one allocation to the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Any

import torch
from torch.utils import _pytree as pytree

from verl_kernel.env.ipc.shared_memory import POISON
from verl_kernel.env.ops.dispatch_modes import DispatchMode
from verl_kernel.env.ops.table import Trait, op_of

ABLATED = 3e4
"""Number in unwritten floating tensors during an ablation; half precision can represent it."""
_EVERY = 61
"""A prime: whatever the length of rows, all their places have their turn."""
_STEP = 17
"""How far the first of these elements moves from one allocation to the next."""


def poison_free_blocks(like: Sequence[torch.Tensor], copies: int = 2) -> None:
    """Allocate, poison and free blocks of these sizes, which the caching allocator returns next."""
    blocks = []
    with suppress(torch.OutOfMemoryError):  # before it raises, the allocator has released all its cached blocks
        for tensor in [*like] * copies:
            blocks.append(torch.empty(_nbytes(tensor), dtype=torch.uint8, device=tensor.device).fill_(POISON))


def _nbytes(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage().nbytes())


class PoisonedAllocations(DispatchMode):
    """Fills every tensor that is allocated without values.

    Args:
        number: value of floating tensors instead of NaN. A large number spoils what a program computes from it, except
            where the program multiplies it by almost zero.
    """

    def __init__(self, number: float | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._number = number
        self._allocated = count()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        traits = op_of(func).traits
        grows = Trait.GROWS in traits and args[0].layout is torch.strided
        before = _nbytes(args[0]) if grows else 0
        result = func(*args, **(kwargs or {}))
        if grows:
            _fill_behind(args[0], before)
        if Trait.ALLOCATES in traits:
            for tensor in pytree.tree_leaves(result):
                _fill(tensor, self._number, next(self._allocated) * _STEP % _EVERY)
        return result


def _fill_behind(tensor: torch.Tensor, start: int) -> None:
    """Fill the memory by which a tensor has grown, from byte `start` on."""
    if tensor.device.type != "meta" and _nbytes(tensor) > start:
        whole = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
        whole[start:].fill_(POISON)


def _fill(tensor: torch.Tensor, number: float | None, first: int) -> None:
    if tensor.layout is torch.strided and tensor.numel() and tensor.device.type != "meta":
        if number is not None and tensor.is_floating_point():
            torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(tensor.untyped_storage()).fill_(number)
            return
        whole = torch.empty(0, dtype=torch.uint8, device=tensor.device)
        whole.set_(tensor.untyped_storage())
        whole.fill_(POISON)
        if tensor.is_floating_point() and tensor.element_size() > 1:  # torch fills no strided numbers of 8 bits
            each = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(tensor.untyped_storage())
            each[first::_EVERY].fill_(ABLATED)
