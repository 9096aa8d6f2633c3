# SPDX-License-Identifier: Apache-2.0
"""Says by value whether a stored block is one that was loaded before, moved.

Compared are the active lanes, bit for bit (with -0 equal to 0 and after the conversion that the store makes), so that
`x * 1`, `x + 0` and `max(x, x)` move like a plain copy. Which lane goes where does not matter, as in a flip or a
transposition; a block that the kernel brought into order is sorted, not moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
MANY = 16
"""Lanes from which on an agreement of reordered or partial blocks is no coincidence."""


class Block:
    """The values of one load or store and which of its lanes are active."""

    def __init__(self, values: Array, mask: Any = True) -> None:
        self.values, self._mask = values, mask
        self._bits: dict[np.dtype[Any], tuple[Array, Array, int]] = {}

    def bits(self, dtype: np.dtype[Any]) -> tuple[Array, Array, int]:
        """After conversion to `dtype`: bits of all lanes, of the active ones in order, and a sum of the latter."""
        if dtype not in self._bits:
            whole = _bits(self.values, dtype)
            active = whole[self.active]
            self._bits[dtype] = whole, active, int(active.sum(dtype=np.uint64))
        return self._bits[dtype]

    @property
    def active(self) -> Array:
        """The mask in the shape of the values."""
        return np.broadcast_to(self._mask, self.values.shape)

    @property
    def lanes(self) -> Array:
        """Values of the active lanes."""
        return self.values[self.active]


def moved_from(stored: Block, loaded: Sequence[Block]) -> int | None:
    """Which of the loaded blocks the stored one is.

    Args:
        stored: what a program stores.
        loaded: what it has loaded before.

    Returns:
        Its index in `loaded`, `len(loaded)` if it is all of them together, None if it is none of them.
    """
    dtype = stored.values.dtype
    alike = [(number, block) for number, block in enumerate(loaded) if _convertible(block.values.dtype, dtype)]
    for number, block in reversed(alike):
        if _is_same(stored, block, dtype):
            return number
    parts = [block.bits(dtype) for _, block in alike]
    _whole, lanes, total = stored.bits(dtype)
    if len(parts) > 1 and sum(part[2] for part in parts) % 2**64 == total:
        together = np.concatenate([part[1] for part in parts])
        if _is_reordered(stored.lanes, lanes, together) and lanes.size >= MANY:
            return len(loaded)
    return None


def _is_same(stored: Block, loaded: Block, dtype: np.dtype[Any]) -> bool:
    (_, lanes, total), (whole, others, other_total) = stored.bits(dtype), loaded.bits(dtype)
    if whole.shape == stored.values.shape and np.array_equal(lanes, whole[stored.active]):
        return True
    if lanes.size == others.size:
        if np.array_equal(lanes, others):
            return True
        return total == other_total and lanes.size >= MANY and _is_reordered(stored.lanes, lanes, others)
    return _is_part(others, lanes) if lanes.size < others.size else _is_repeated(lanes, others)


def _is_reordered(values: Array, lanes: Array, others: Array) -> bool:
    """Whether these are the same lanes in another order that does not come from sorting them."""
    if lanes.size != others.size or not np.array_equal(np.sort(lanes), np.sort(others)):
        return False
    return not _is_sorted(values) or _is_sorted(others.view(values.dtype))


def _is_sorted(values: Array) -> bool:
    return bool(np.all(values[1:] >= values[:-1]) or np.all(values[1:] <= values[:-1]))


def _is_part(large: Array, small: Array) -> bool:
    """Whether `small` is a run of `large`, or every n-th lane of it."""
    if small.size < MANY or large.size % small.size:
        return False
    runs, columns = large.reshape(-1, small.size), large.reshape(small.size, -1).T
    return bool(np.any(np.all(runs == small, axis=1)) or np.any(np.all(columns == small, axis=1)))


def _is_repeated(large: Array, small: Array) -> bool:
    """Whether `large` is `small` broadcast."""
    if small.size == 0 or large.size % small.size:
        return False
    return bool(np.all(large.reshape(-1, small.size) == small) or np.all(small == large.reshape(small.size, -1).T))


def _convertible(given: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    kinds = given.kind + wanted.kind
    return kinds == "ff" or set(kinds) <= set("iub")


def _bits(values: Array, dtype: np.dtype[Any]) -> Array:
    with np.errstate(all="ignore"):  # what overflows is another value
        values = values.astype(dtype, copy=False)
    if dtype.kind == "f":
        values = values + dtype.type(0)
    bits: Array = np.ascontiguousarray(values).view(f"u{dtype.itemsize}").reshape(values.shape)
    return bits
