# SPDX-License-Identifier: Apache-2.0
"""Tracks the memory of a forward that torch has allocated without values, and what torch has written to it since.

The executing process knows what kernels write to this memory. Only the judge knows whether that process checks it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree

from verl_kernel.env.devices.cpu.execution_link import Range
from verl_kernel.env.ipc.execution_messages import Fresh
from verl_kernel.env.ops.dispatch_modes import DispatchMode, changed
from verl_kernel.env.ops.table import Trait, op_of


@dataclass
class _Allocation:
    """A storage that was allocated without values."""

    number: int
    storage: StorageWeakRef
    bytes: int
    runs: list[tuple[int, int]] = field(default_factory=list)
    """First byte and end of each range that torch has written since the last report to the executing process."""


class Allocations:
    """Allocations without values in the current forward."""

    def __init__(self) -> None:
        self._allocations: dict[int, _Allocation] = {}
        self._numbers = count()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Record what torch allocates and writes in the context, and forget earlier records."""
        self._allocations.clear()
        with _Watch(self):
            yield

    def add(self, tensor: torch.Tensor) -> None:
        """Record a tensor that was allocated without values."""
        if tensor.layout is torch.strided and tensor.device.type == "cpu" and tensor.numel():
            storage = tensor.untyped_storage()
            alive = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
            self._allocations[storage._cdata] = _Allocation(next(self._numbers), alive, storage.nbytes())

    def wrote(self, tensors: Iterable[torch.Tensor]) -> None:
        """Record that torch changed these tensors; all bytes from first to last element count as written."""
        for tensor in tensors:
            if tensor.layout is torch.strided and tensor.numel() and (allocation := self._of(tensor)) is not None:
                size, first = tensor.element_size(), int(tensor.storage_offset()) * tensor.element_size()
                last = sum((many - 1) * step for many, step in zip(tensor.shape, tensor.stride(), strict=True))
                allocation.runs.append((first, first + (int(last) + 1) * size))

    def report(self, tensors: Sequence[torch.Tensor], ranges: Sequence[Range], areas: Sequence[Range]) -> list[Fresh]:
        """Return what to report to the executing process about a launch's memory; each write is reported once.

        Args:
            tensors: tensors that the launch may touch.
            ranges: the memory of each tensor.
            areas: pieces of memory, in the order of the areas in the launch request.
        """
        allocations = {}
        for tensor, area in zip(tensors, ranges, strict=True):
            allocation = self._of(tensor) if self._allocations else None
            if allocation is not None and area[1] - area[0] == allocation.bytes:
                allocations[area] = allocation
        fresh = []
        for number, area in enumerate(areas):
            if (allocation := allocations.get(area)) is not None:
                fresh.append((number, allocation.number, allocation.runs))
                allocation.runs = []
        return fresh

    def _of(self, tensor: torch.Tensor) -> _Allocation | None:
        storage = tensor.untyped_storage()
        allocation = self._allocations.get(storage._cdata)
        if allocation is None or allocation.bytes != storage.nbytes() or allocation.storage.expired():  # type: ignore[no-untyped-call]
            return None
        return allocation


ALLOCATIONS = Allocations()
"""Allocations of this process."""


class _Watch(DispatchMode):
    """Observes torch's allocations and writes."""

    def __init__(self, allocations: Allocations) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._allocations = allocations

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if Trait.ALLOCATES in op_of(func).traits:
            for tensor in pytree.tree_leaves(result):
                self._allocations.add(tensor)
        elif func._schema.is_mutable:
            self._allocations.wrote(changed(func._schema, args, kwargs or {}))
        return result
