# SPDX-License-Identifier: Apache-2.0
"""Packs weights into buckets of bytes, and unpacks them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import torch

_ALIGNMENT = 16
"""Alignment in bytes: a view in a weight's dtype must start at a multiple of the dtype's size; 16 is the largest."""


@dataclass(frozen=True)
class Entry:
    """One weight of a bucket: its name, dtype, shape and first byte."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    offset: int


@dataclass
class Bucket:
    """Weights in sequence in one uint8 tensor."""

    data: torch.Tensor
    entries: list[Entry] = field(default_factory=list)
    used: int = 0

    @property
    def payload(self) -> torch.Tensor:
        """Return the bytes that hold weights, uint8 (used,)."""
        return self.data[: self.used]

    def has_room(self, weight: torch.Tensor) -> bool:
        """Whether the weight fits after the others."""
        return self._next_offset() + weight.nbytes <= len(self.data)

    def add(self, name: str, weight: torch.Tensor) -> None:
        """Copy a weight, of any dtype and layout, after the others."""
        offset = self._next_offset()
        self.entries.append(Entry(name, tuple(weight.shape), weight.dtype, offset))
        self.used = offset + weight.nbytes
        self.data[offset : self.used].copy_(weight.detach().contiguous().reshape(-1).view(torch.uint8))

    def _next_offset(self) -> int:
        return math.ceil(self.used / _ALIGNMENT) * _ALIGNMENT


def pack(weights: Iterable[tuple[str, torch.Tensor]], bucket_size: int) -> Iterator[Bucket]:
    """Copy weights into buckets, in their order.

    Args:
        weights: names and tensors; taken one by one, as each may be gathered only when it is asked for.
        bucket_size: bytes of a bucket; a larger weight gets a separate bucket.
    """
    bucket = _bucket(bucket_size)
    for name, weight in weights:
        if not bucket.has_room(weight):
            if bucket.entries:
                yield bucket
            bucket = _bucket(max(bucket_size, weight.nbytes))
        bucket.add(name, weight)
    if bucket.entries:
        yield bucket


def unpack(entries: Iterable[Entry], payload: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield names and weights of a bucket; they share the memory of `payload`, uint8 (bytes,)."""
    for entry in entries:
        size = math.prod(entry.shape) * entry.dtype.itemsize
        yield entry.name, payload[entry.offset : entry.offset + size].view(entry.dtype).view(entry.shape)


def _bucket(size: int) -> Bucket:
    return Bucket(torch.empty(size, dtype=torch.uint8))
