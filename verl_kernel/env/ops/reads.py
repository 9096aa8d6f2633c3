# SPDX-License-Identifier: Apache-2.0
"""Measures what a forward must read: for each input or weight, the largest part that a single op reads.

Gathered tensors do not count, since an op reads only some of their elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from verl_kernel.env.ops import traffic
from verl_kernel.env.ops.dispatch_modes import OpMode
from verl_kernel.env.ops.table import is_view, op_of


def bytes_read(run: Callable[[], object], tensors: Sequence[torch.Tensor]) -> int:
    """Return a lower bound of the bytes of `tensors` that `run()` reads."""
    reads = Reads(tensors)
    with reads:
        run()
    return reads.bytes


class Reads(OpMode):
    """Records for each storage the largest part that one op reads.

    Args:
        tensors: tensors whose storages count.
    """

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._limits = {storage_of(tensor): tensor.untyped_storage().nbytes() for tensor in tensors if tensor.numel()}
        self.largest: dict[int, int] = {}
        """Bytes by address of the storage."""

    @property
    def bytes(self) -> int:
        """Bytes read of all storages together."""
        return sum(self.largest.values())

    def run_op(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run one op and record what it reads."""
        result = func(*args, **kwargs)
        op = op_of(func)
        if not is_view(func) and not op.is_free:
            skip = op.bytes is traffic.gathered or op.unread_place(func._schema.name) == 0
            self._note(pytree.tree_leaves((args[1:] if skip else args, kwargs)))
        return result

    def _note(self, leaves: Sequence[Any]) -> None:
        for tensor in leaves:
            if isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided and tensor.numel():
                key = storage_of(tensor)
                if key in self._limits:
                    part = min(distinct_bytes(tensor), self._limits[key])
                    self.largest[key] = max(self.largest.get(key, 0), part)


def storage_of(tensor: torch.Tensor) -> int:
    """Return the address of a tensor's storage."""
    return tensor.untyped_storage().data_ptr()


def distinct_bytes(tensor: torch.Tensor) -> int:
    """Return the bytes of a tensor's elements; those that a stride of 0 repeats count once."""
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    count = 1
    for size, stride in steps:
        count *= size if stride else 1
    return count * tensor.element_size()
