# SPDX-License-Identifier: Apache-2.0
"""What the events of a forward have left in the L2 cache for later ones.

An event's reads of a tensor that an earlier event read or wrote may come from L2; how much has moved since decides it,
with the size of a GPU's cache. Inputs are cold. Tensors are told apart by storage and offset; a storage that was freed
is forgotten, so that the memory of another one at its address is not taken for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from weakref import WeakKeyDictionary

import torch

Uses = Iterable[tuple[torch.Tensor, int]]
"""Tensors, and the bytes of them that an event moves."""


class L2History:
    """Of one forward."""

    def __init__(self) -> None:
        self._moved = 0
        self._last: WeakKeyDictionary[torch.UntypedStorage, dict[object, int]] = WeakKeyDictionary()
        """By storage and offset, how much had moved when a tensor was last used."""

    def add(self, reads: Uses, writes: Uses) -> tuple[tuple[int, int], ...]:
        """Take note of an event.

        Returns:
            Pairs (bytes, how many have moved since) of its reads that are not the first ones.
        """
        reads, writes = list(reads), list(writes)
        since = [(size, self._since(tensor)) for tensor, size in reads]
        self._moved += sum(size for _, size in (*reads, *writes))
        for tensor, _ in (*reads, *writes):
            if tensor.layout is torch.strided:
                self._last.setdefault(tensor.untyped_storage(), {})[tensor.storage_offset()] = self._moved
        return tuple((size, age) for size, age in since if age is not None and size)

    def _since(self, tensor: torch.Tensor) -> int | None:
        if tensor.layout is not torch.strided:
            return None
        last = self._last.get(tensor.untyped_storage(), {}).get(tensor.storage_offset())
        return None if last is None else self._moved - last
