# SPDX-License-Identifier: Apache-2.0
"""Which bytes of `torch.empty` and its like have been written, by kernels or by torch.

Tensors that torch allocates in any other way have been written whole, and so has a tensor that an op of torch changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree

from verl_kernel.env.devices.cpu.counting import STATE
from verl_kernel.env.devices.cpu.memory.access import Array
from verl_kernel.env.devices.op_mode import DispatchMode, changed
from verl_kernel.env.devices.poison import ALLOCATING_OPS

_MOST_BYTES = 1 << 28
"""Larger storages count as written: the notes on one are as large as itself."""
_WRITTEN = {size: np.frombuffer(b"\1" * size, dtype=f"u{size}")[0] for size in (1, 2, 4, 8)}


class Allocation:
    """A storage that nobody has written whole."""

    def __init__(self, storage: torch.UntypedStorage) -> None:
        self.nbytes = storage.nbytes()
        self._alive = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
        self._written = np.zeros(self.nbytes, dtype=np.uint8)

    @property
    def is_gone(self) -> bool:
        """Whether its memory was freed."""
        return bool(self._alive.expired())  # type: ignore[no-untyped-call]

    @property
    def is_whole(self) -> bool:
        """Whether all of it has been written."""
        return bool(self._written.all())

    def holds(self, cells: Array, unit: int) -> Array:
        """Which of these cells of `unit` bytes have been written whole."""
        found: Array = self._cells(unit)[cells] == _WRITTEN[unit]
        return found

    def mark(self, cells: Array, unit: int) -> None:
        """These cells have been written."""
        self._cells(unit)[cells] = _WRITTEN[unit]

    def mark_tensor(self, tensor: torch.Tensor) -> None:
        """The elements of a tensor that lies here have been written."""
        size = tensor.element_size()
        first, steps = tensor.storage_offset() * size, [step * size for step in tensor.stride()]
        shape = (*tensor.shape, size)
        np.lib.stride_tricks.as_strided(self._written[first:], shape, (*steps, 1))[...] = 1

    def _cells(self, unit: int) -> Array:
        whole = self._written.size // unit * unit
        return self._written[:whole].view(f"u{unit}")


class Allocations:
    """The storages of this process that are known to hold bytes nobody wrote."""

    def __init__(self) -> None:
        self._known: dict[int, Allocation] = {}

    def add(self, tensor: torch.Tensor) -> None:
        """A tensor was allocated without values."""
        if tensor.layout is torch.strided and tensor.device.type == "cpu" and tensor.numel():
            storage = tensor.untyped_storage()
            if storage.nbytes() <= _MOST_BYTES:
                self._known[storage._cdata] = Allocation(storage)

    def of(self, tensor: torch.Tensor) -> Allocation | None:
        """What is known of a tensor's storage; None if all of it has been written, or its size was changed."""
        if not self._known:
            return None
        storage = tensor.untyped_storage()
        found = self._known.get(storage._cdata)
        return found if found is not None and found.nbytes == storage.nbytes() else None

    def wrote(self, tensors: Iterable[torch.Tensor]) -> None:
        """An op of torch changed these tensors."""
        for tensor in tensors:
            if tensor.layout is torch.strided and tensor.numel() and (allocation := self.of(tensor)) is not None:
                allocation.mark_tensor(tensor)

    def tidy(self) -> None:
        """Forget what was freed or is written whole."""
        left = {key: item for key, item in self._known.items() if not (item.is_gone or item.is_whole)}
        self._known = left

    def forget(self) -> None:
        """From now on all that exists counts as written."""
        self._known.clear()


ALLOCATIONS = Allocations()
"""Those of this process."""


class AllocationWatch(DispatchMode):  # type: ignore[no-untyped-call]
    """Notes what torch allocates and writes while a program runs."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if STATE.marshalling:
            return result
        if func._schema.name in ALLOCATING_OPS:
            for tensor in pytree.tree_leaves(result):
                ALLOCATIONS.add(tensor)
        elif func._schema.is_mutable:
            ALLOCATIONS.wrote(changed(func._schema, args, kwargs or {}))
        return result
