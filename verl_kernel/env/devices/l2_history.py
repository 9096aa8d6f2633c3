# SPDX-License-Identifier: Apache-2.0
"""What the events of a forward have left in the L2 cache for later ones.

An event's reads of a tensor that an earlier event read or wrote may come from L2, as many bytes as that one moved; how
much has moved since decides it, with the size of a GPU's cache. An event moves its tensors one after the other, those
that it writes last: so of several that the cache does not hold together, not all are found there. Inputs are cold.
Tensors are told apart by storage and offset; a storage that was freed is forgotten, so that the memory of another one
at its address is not taken for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from weakref import WeakKeyDictionary

import torch

Uses = Iterable[tuple[torch.Tensor, int]]
"""Tensors, and the bytes of them that an event moves."""


class L2History:
    """Of one forward."""

    def __init__(self) -> None:
        self._moved = 0
        self._last: WeakKeyDictionary[torch.UntypedStorage, dict[object, list[tuple[int, int]]]] = WeakKeyDictionary()
        """By storage and offset, how much had moved when a tensor was used, and how many bytes of it were; the latest
        use is last, and those that a later one covers are left out."""

    def add(self, reads: Uses, writes: Uses) -> tuple[tuple[int, int], ...]:
        """Take note of an event.

        Returns:
            Pairs (bytes, how many have moved since) of its reads that are not the first ones.
        """
        reads, writes = list(reads), list(writes)
        recent = [piece for tensor, size in reads for piece in self._pieces(tensor, size)]
        for tensor, size in (*reads, *writes):
            self._moved += size
            if tensor.layout is torch.strided:
                uses = self._last.setdefault(tensor.untyped_storage(), {})
                before = [use for use in uses.get(tensor.storage_offset(), []) if use[1] > size]
                uses[tensor.storage_offset()] = [*before, (self._moved, size)]
        return tuple(recent)

    def _pieces(self, tensor: torch.Tensor, size: int) -> Iterator[tuple[int, int]]:
        """Bytes of a read that earlier uses moved, with what has moved since."""
        if tensor.layout is not torch.strided:
            return
        found = 0
        for moment, used in reversed(self._last.get(tensor.untyped_storage(), {}).get(tensor.storage_offset(), [])):
            piece = min(used, size) - found
            if piece > 0:
                yield piece, self._moved - moment
                found += piece
