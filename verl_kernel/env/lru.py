# SPDX-License-Identifier: Apache-2.0
"""A least-recently-used cache with limits on items and bytes."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

Item = TypeVar("Item")


class LRUCache(Generic[Item]):
    """A cache of the most recently used items; not thread-safe.

    Args:
        capacity: largest number of items.
        most_bytes: largest sum of the items' sizes; the latest item stays even if it alone is larger.
    """

    def __init__(self, capacity: int, most_bytes: int | None = None) -> None:
        self._capacity, self._most_bytes = capacity, most_bytes
        self._items: OrderedDict[str, tuple[Item, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, key: str) -> bool:
        return key in self._items

    def get(self, key: str) -> Item | None:
        """Return an item, and make it the most recent one; None if there is none."""
        if key not in self._items:
            return None
        self._items.move_to_end(key)
        return self._items[key][0]

    def put(self, key: str, item: Item, size: int = 0) -> Item:
        """Store and return `item`, which takes `size` bytes."""
        self._items[key] = item, size
        self._items.move_to_end(key)
        while len(self._items) > 1 and self._is_full():
            self._items.popitem(last=False)
        return item

    def clear(self) -> None:
        """Remove all items."""
        self._items.clear()

    def _is_full(self) -> bool:
        held_bytes = sum(size for _, size in self._items.values())
        return len(self._items) > self._capacity or (self._most_bytes is not None and held_bytes > self._most_bytes)
